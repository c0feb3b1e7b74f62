"""The scale of a posterior by a belief, without labels, against the choice on 1000 validation labels.

Three Gaussian classes in six dimensions, 100 training examples, an MLP 6-16-3; the best classifier has an accuracy of
.83, the networks have about .78. Printed is the NLL on 5000 test examples, the mean over seeds with its standard error:
at a scale of 1 (for Laplace, a prior precision of 1), at the value chosen on labels, and at those chosen by
`selbo.choose_scale` on 600 unlabelled inputs for three stated accuracies; for Laplace also by the marginal likelihood.

    python benchmarks/choose_scale.py --seeds 10
"""

import argparse
import platform

import torch
from torch import Tensor, nn

import selbo
from selbo.posteriors import SWAG, LastLayerLaplace, NaturalGradientPosterior, Posterior, as_posterior

NUM_DATA, STATED = 100, (0.7, 0.8, 0.9)
SCALES = [2 ** (k / 2) for k in range(-8, 9)]
PRECISIONS = [10 ** (k / 2) for k in range(-8, 9)]


def data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    return torch.randn(count, 6, generator=generator) + 1.8 * torch.eye(3, 6)[labels], labels


def network(seed: int) -> nn.Module:
    return selbo.models.MLP((6, 16, 3), generator=torch.Generator().manual_seed(seed))


def posteriors(seed: int) -> dict[str, tuple[Posterior, str]]:
    train, objective = data(NUM_DATA, 4 * seed), selbo.CrossEntropy(NUM_DATA)
    net = network(seed)
    swag = SWAG(net, max_rank=10)
    sgd = {"optimizer": "sgd", "learning_rate": 0.1}
    selbo.fit(net, objective, train, steps=150, batch_size=NUM_DATA, callbacks=(), **sgd)
    selbo.fit(net, objective, train, steps=100, batch_size=20, callbacks=[swag.collect], log_every=4, **sgd)
    laplace = LastLayerLaplace(net)
    laplace.observe(train[0])
    natural = NaturalGradientPosterior(network(seed), num_data=NUM_DATA, prior_std=1.0)
    selbo.fit(natural, objective, train, steps=300, batch_size=NUM_DATA, callbacks=())
    bnn = selbo.to_bayesian(network(seed), prior_std=1.0, init_std=0.05)
    elbo = selbo.ELBO(NUM_DATA, kl_weight=0.02)
    selbo.fit(bnn, elbo, train, steps=300, batch_size=NUM_DATA, learning_rate=0.01, callbacks=())
    return {
        "SWAG": (swag, "scale"),
        "last-layer Laplace": (laplace, "prior_precision"),
        "natural gradient": (natural, "scale"),
        "mean field, KL weight .02": (as_posterior(bnn), "scale"),
    }


def nll(posterior: Posterior, part: tuple[Tensor, Tensor]) -> float:
    noise = torch.Generator().manual_seed(0)
    return nn.functional.nll_loss(selbo.predict(posterior, part[0], 32, generator=noise).log_probs, part[1]).item()


def measure(posterior: Posterior, setting: str, seed: int) -> list[float]:
    unlabelled, val, test = data(600, 4 * seed + 1)[0], data(1000, 4 * seed + 2), data(5000, 4 * seed + 3)

    def at(value: float, part: tuple[Tensor, Tensor]) -> float:
        setattr(posterior, setting, value)
        return nll(posterior, part)

    best = min(SCALES if setting == "scale" else PRECISIONS, key=lambda value: at(value, val))
    found = [at(1.0, test), at(best, test)]
    for accuracy in STATED:
        partition = selbo.ConfidenceBins([0.4, 0.5, 0.6, 0.7, 0.8, 0.9], num_classes=3)
        belief = selbo.expect(accuracy=accuracy, class_fractions=[1 / 3] * 3)
        selbo.choose_scale(
            posterior, unlabelled, selbo.SummaryLikelihood(partition, belief, concentration=100.0), setting=setting
        )
        found.append(nll(posterior, test))
    if isinstance(posterior, LastLayerLaplace):
        posterior.maximise_evidence()
        found.append(nll(posterior, test))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    rows: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        for name, (posterior, setting) in posteriors(seed).items():
            rows.setdefault(name, []).append(measure(posterior, setting, seed))
    print(f"torch {torch.__version__}, {platform.machine()}, {seeds} seeds\n")
    print("| posterior | 1 | 1000 labels | " + " | ".join(f"belief, {each}" for each in STATED) + " | evidence |")
    print("|---|---|---|" + "---|" * len(STATED) + "---|")
    for name, found in rows.items():
        table = torch.tensor(found)
        cells = zip(table.mean(0).tolist(), (table.std(0) / seeds**0.5).tolist(), strict=True)
        print(f"| {name} | " + " | ".join(f"{mean:.3f} ± {error:.3f}" for mean, error in cells) + " |")


if __name__ == "__main__":
    main()

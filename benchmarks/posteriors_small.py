"""Posteriors of a small network against Hamiltonian Monte Carlo, weights of samples and scales by a stated accuracy.

Real tables with few training rows, one network with 16 hidden units and one Gaussian prior for all methods.
The design was written down before the runs: lab/docs/designs.md, "Posteriors of small networks".

    python benchmarks/posteriors_small.py --out runs.jsonl [--data wine] [--seeds 500]
    python benchmarks/posteriors_small.py --out curvature.jsonl --curvature

Each split is one line of the file; lines that it holds are not repeated. The tables of all lines are printed. With
`--curvature` only the initial curvature of the natural gradient is chosen, by labels and by a belief.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import sklearn.datasets as sets
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn.functional import cross_entropy

import selbo
from selbo.posteriors import SWAG, Ensemble, LastLayerLaplace, NaturalGradientPosterior, Posterior, as_posterior
from selbo.report.differences import compute_difference

HIDDEN: Final = 16
PRIOR_STD: Final = 1.0
PRIOR_STDS: Final = (0.2, 0.5, 1.0, 2.0)
SCALES: Final = [2 ** (k / 2) for k in range(-8, 9)]
CURVATURES: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
DEFAULT_CURVATURE: Final = 0.5
STEP_SIZES: Final = (0.04, 0.02, 0.01, 0.005)
CHAINS: Final = 4
RIGHT, WRONG = 0.95, 0.85
TABLES: Final[dict[str, tuple[Callable[..., Any], int]]] = {
    "breast cancer": (sets.load_breast_cancer, 100),
    "wine": (sets.load_wine, 50),
    "digits": (sets.load_digits, 300),
    "iris": (sets.load_iris, 50),
}
"""Tables and their numbers of training rows."""
PILOT: Final = "iris"

Part = tuple[Tensor, Tensor]


class Split:
    """One split of a table: training rows, and two halves of the others, to validate (or unlabelled) and to test."""

    def __init__(self, name: str, seed: int) -> None:
        load, count = TABLES[name]
        X, y = load(return_X_y=True)
        X, rest, labels, others = train_test_split(X, y, train_size=count, stratify=y, random_state=seed)
        halves = train_test_split(rest, others, test_size=0.5, stratify=others, random_state=seed)
        std = X.std(0)
        centre, width = X.mean(0), std + (std == 0)

        def part(rows: Any, classes: Any) -> Part:
            return torch.tensor((rows - centre) / width, dtype=torch.float32), torch.tensor(classes)

        self.train, self.val, self.test = part(X, labels), part(halves[0], halves[2]), part(halves[1], halves[3])
        self.count, self.classes, self.seed = count, int(y.max()) + 1, seed

    def summary(self, accuracy: float) -> selbo.SummaryLikelihood:
        partition = selbo.ConfidenceBins([0.6, 0.7, 0.8, 0.9], num_classes=self.classes)
        belief = selbo.expect(accuracy, num_classes=self.classes)
        return selbo.SummaryLikelihood(partition, belief, concentration=float(self.count))

    def network(self) -> selbo.models.MLP:
        generator = torch.Generator().manual_seed(100 * self.seed)
        return selbo.models.MLP((self.train[0].shape[1], HIDDEN, self.classes), generator=generator)

    def fit(self, model: Any, objective: Any, steps: int, **settings: Any) -> None:
        settings = {"batch_size": self.count, "schedule": "cosine", "callbacks": (), "seed": self.seed} | settings
        selbo.fit(model, objective, self.train, steps=steps, **settings)


def outputs(weights: Tensor, inputs: Tensor, classes: int) -> Tensor:
    """Logits of many networks at once: vectors of weights (S, P) to (S, B, K)."""
    sizes = [HIDDEN * inputs.shape[1], HIDDEN, HIDDEN * classes, classes]
    first, bias, last, offset = weights.split(sizes, -1)
    hidden = (inputs @ first.view(len(weights), HIDDEN, -1).mT + bias[:, None]).relu()
    return hidden @ last.view(len(weights), classes, HIDDEN).mT + offset[:, None]


def hmc(split: Split, summary: selbo.SummaryLikelihood | None) -> tuple[Tensor, dict[str, float]]:
    """Samples (S, C, P) of independent chains, which start at samples of the prior."""
    inputs, labels = split.train

    def log_posterior(weights: Tensor) -> Tensor:
        log_probs = outputs(weights, inputs, split.classes).log_softmax(-1)
        value = log_probs[:, torch.arange(split.count), labels].sum(-1)
        value = value if summary is None else value + summary(log_probs)
        return value - 0.5 * weights.square().sum(-1) / PRIOR_STD**2

    network, objective = split.network(), selbo.CrossEntropy(split.count, summary)
    reference = selbo.posteriors.network_log_posterior(
        network, lambda net: objective(net, inputs, labels).loss, num_data=split.count, prior_std=PRIOR_STD
    )
    generator = torch.Generator().manual_seed(split.seed)
    size = sum(each.numel() for each in network.parameters())
    state = PRIOR_STD * torch.randn(CHAINS, size, generator=generator)
    torch.testing.assert_close(log_posterior(state)[0], reference(state[0]), rtol=1e-4, atol=1e-2)

    def sample(count: int, step: float, leapfrog: int) -> selbo.posteriors.HMCSamples:
        return selbo.hmc(
            log_posterior, state, num_samples=count, step_size=step, leapfrog_steps=leapfrog,
            burn_in=0, generator=generator,
        )  # fmt: skip

    state = sample(20, STEP_SIZES[-1], 20).samples[-1]
    for step in STEP_SIZES:
        found = sample(12, step, 10)
        state = found.samples[-1]
        if found.acceptance_rate >= 0.7:
            break
    leapfrog = min(60, round(0.8 / step))
    state = sample(30, step, leapfrog).samples[-1]
    found = sample(80, step, leapfrog)
    return found.samples, {"acceptance": found.acceptance_rate, "step": step}


def r_hat(values: Tensor) -> Tensor:
    """Split R-hat of each entry: (S, C, ...), with at least four samples per chain."""
    half = len(values) // 2
    parts = torch.cat([values[:half], values[half : 2 * half]], 1).double()
    within, between = parts.var(0).mean(0), parts.mean(0).var(0)
    return ((half - 1) / half + between / within.clamp_min(1e-12)).sqrt()


def sampler(split: Split, kind: Any, summary: selbo.SummaryLikelihood | None, **settings: Any) -> Posterior:
    """Samples of 2400 full-batch steps: 60 in six cycles; without cycles the last 90 of 120."""
    network, (inputs, labels) = split.network(), split.train
    optimizer = kind(network.parameters(), num_data=split.count, prior_std=PRIOR_STD, seed=split.seed, **settings)
    samples, cyclic = selbo.SampleSet(network), "cycle_steps" in settings
    for step in range(2400):
        optimizer.zero_grad()
        logits = network(inputs)
        loss = cross_entropy(logits, labels)
        if summary is not None:
            loss = loss - summary(logits.log_softmax(-1)) / split.count
        loss.backward()
        optimizer.step()
        if cyclic or step >= 600:
            samples.collect(optimizer, every=20)
    return samples


def map_network(split: Split, summary: selbo.SummaryLikelihood | None, prior_std: float) -> selbo.models.MLP:
    """The most probable weights under a Gaussian prior."""
    network = split.network()
    adam = selbo.training.Optimizer("adam", weight_decay=1 / (split.count * prior_std**2))
    split.fit(network, selbo.CrossEntropy(split.count, summary), 400, optimizer=adam, learning_rate=0.01)
    return network


def natural_gradient(
    split: Split, summary: selbo.SummaryLikelihood | None, curvature: float = DEFAULT_CURVATURE
) -> NaturalGradientPosterior:
    found = NaturalGradientPosterior(
        split.network(), num_data=split.count, prior_std=PRIOR_STD, initial_curvature=curvature
    )
    split.fit(found, selbo.CrossEntropy(split.count, summary), 800, learning_rate=0.1)
    return found


def posteriors(split: Split, summary: selbo.SummaryLikelihood | None) -> dict[str, Posterior]:
    count, inputs = split.count, split.train[0]
    objective = selbo.CrossEntropy(count, summary)
    decay = 1 / (count * PRIOR_STD**2)
    ensemble = Ensemble(lambda: selbo.models.MLP((inputs.shape[1], HIDDEN, split.classes)), 10, seed=split.seed)
    adam = selbo.training.Optimizer("adam", weight_decay=decay)
    split.fit(ensemble, objective, 400, optimizer=adam, learning_rate=0.01)
    network = map_network(split, summary, PRIOR_STD)
    laplace = LastLayerLaplace(network, prior_precision=1 / PRIOR_STD**2)
    laplace.observe(inputs)
    averaged = split.network()
    averaged.load_state_dict(network.state_dict())
    swag = SWAG(averaged, max_rank=20)
    sgd = selbo.training.Optimizer("sgd", weight_decay=decay)
    split.fit(
        averaged, objective, 300, optimizer=sgd, learning_rate=0.05, schedule="constant", batch_size=25,
        callbacks=[swag.collect], log_every=10,
    )  # fmt: skip
    bnn = selbo.to_bayesian(split.network(), prior_std=PRIOR_STD, init_std=0.05)
    elbo = selbo.ELBO(count) if summary is None else selbo.SummaryELBO(summary, count)
    split.fit(bnn, elbo, 800, learning_rate=0.02)
    found: dict[str, Posterior] = {
        "network (MAP)": as_posterior(network),
        "ensemble of 10": ensemble,
        "last-layer Laplace": laplace,
        "SWAG": swag,
        "mean field": as_posterior(bnn),
    }
    found["natural gradient"] = natural_gradient(split, summary)
    for rate in (0.1, 0.01):
        found[f"SGHMC, rate {rate:g}"] = sampler(split, selbo.SGHMC, summary, lr=rate)
    found["SGLD, cycles"] = sampler(split, selbo.SGLD, summary, cycle_steps=400, sampling_fraction=0.5)
    return found


def log_probs(posterior: Posterior, inputs: Tensor, num_samples: int = 32) -> Tensor:
    """Of the mean prediction, always with the same noise: (B, K)."""
    generator = torch.Generator().manual_seed(0)
    return selbo.predict(posterior, inputs, num_samples, generator=generator).log_probs


def scores(found: Tensor, part: Part) -> dict[str, float]:
    values = selbo.evaluate(None, part[1], log_probs=found)
    return {name: values[name] for name in ("nll", "ece", "accuracy")}


def nll(found: Tensor, part: Part, count: int | None = None) -> float:
    return float(-found[torch.arange(len(found)), part[1]][:count].mean())


def choose(
    split: Split, at: Callable[[float, Tensor], Tensor], candidates: Sequence[float], search: Any, start: float
) -> Any:
    """Test NLL at the value that is not chosen, and at those chosen on 20, 100 and all labels, or by two beliefs."""
    on_val = {value: at(value, split.val[0]) for value in candidates}
    values = {"start": start}
    for name, count in (("20 labels", 20), ("100 labels", 100), ("all labels", None)):
        values[name] = min(on_val, key=lambda value: nll(on_val[value], split.val, count))
    values["belief"], values["wrong belief"] = (search(split.summary(each)).value for each in (RIGHT, WRONG))
    return {name: {"value": value, "nll": nll(at(value, split.test[0]), split.test)} for name, value in values.items()}


def choices(split: Split, trained: dict[str, Posterior]) -> dict[str, Any]:
    found = {}
    for name in ("mean field", "natural gradient", "SWAG", "last-layer Laplace"):
        posterior: Any = trained[name]

        def at(value: float, inputs: Tensor, posterior: Any = posterior) -> Tensor:
            posterior.scale = value
            return log_probs(posterior, inputs)

        def search(summary: selbo.SummaryLikelihood, posterior: Any = posterior) -> selbo.evaluation.BeliefChoice:
            return selbo.choose_scale(posterior, split.val[0], summary)

        found[name] = choose(split, at, SCALES, search, 1.0)
    networks = {std: as_posterior(map_network(split, None, std)) for std in PRIOR_STDS}
    found["network (MAP), prior_std"] = choose_among(split, networks, PRIOR_STD)
    return found


def choose_among(split: Split, trained: dict[float, Posterior], start: float) -> Any:
    """The same for a number that enters the training, of which each candidate has been trained."""

    def at(value: float, inputs: Tensor) -> Tensor:
        return log_probs(trained[value], inputs)

    def search(summary: selbo.SummaryLikelihood) -> selbo.evaluation.BeliefChoice:
        return selbo.choose_by_belief(lambda value: at(value, split.val[0]), summary, candidates=list(trained))

    return choose(split, at, list(trained), search, start)


def measure_curvature(name: str, seed: int) -> dict[str, Any]:
    """The initial curvature, which sets the noise of a natural gradient: it hardly moves in a short training."""
    split, begin = Split(name, seed), time.process_time()
    trained: dict[float, Posterior] = {value: natural_gradient(split, None, value) for value in CURVATURES}
    chosen = {"natural gradient, initial_curvature": choose_among(split, trained, DEFAULT_CURVATURE)}
    return {"data": name, "seed": seed, "choices": chosen, "cpu_seconds": time.process_time() - begin}


def measure(name: str, seed: int) -> dict[str, Any]:
    split, begin = Split(name, seed), time.process_time()
    record: dict[str, Any] = {"data": name, "seed": seed, "hmc": {}, "methods": {}, "weights": {}}
    for words, summary in (("without", None), ("with", split.summary(RIGHT))):
        samples, info = hmc(split, summary)
        on_val, on_test = (
            outputs(samples.flatten(0, 1), part[0], split.classes).log_softmax(-1) for part in (split.val, split.test)
        )
        probs = on_test.exp().unflatten(0, samples.shape[:2])
        reference, ratio = probs.mean((0, 1)), r_hat(probs).flatten()
        info |= {"r_hat": float(ratio.median()), "r_hat_95": float(ratio.quantile(0.95))}
        info["between"] = distance(probs[:, :2].mean((0, 1)), probs[:, 2:].mean((0, 1)))
        record["hmc"][words] = info
        trained = posteriors(split, summary)
        found = {each: log_probs(posterior, split.test[0], 100) for each, posterior in trained.items()}
        record["methods"][words] = {
            each: {"tv": distance(value.exp(), reference), **scores(value, split.test)}
            for each, value in {"HMC": reference.log(), **found}.items()
        }
        if summary is None:
            members = {"HMC": (on_val, on_test)}
            for each in ("SGHMC, rate 0.1", "SGHMC, rate 0.01", "ensemble of 10"):
                members[each] = tuple(trained[each].log_probs(part[0]) for part in (split.val, split.test))
            for each, (val, test) in members.items():
                equal = test.logsumexp(0) - torch.tensor(float(len(test))).log()
                for belief, accuracy in (("belief", RIGHT), ("wrong belief", WRONG)):
                    weights = selbo.belief_weights(val, split.summary(accuracy))
                    after, before = scores(weights(test), split.test), scores(equal, split.test)
                    changes = {metric: after[metric] - before[metric] for metric in after}
                    size = {"samples": len(test), "effective": weights.effective_sample_size}
                    record["weights"].setdefault(each, {})[belief] = changes | size
            record["choices"] = choices(split, trained)
    return record | {"cpu_seconds": time.process_time() - begin}


def distance(probs: Tensor, others: Tensor) -> float:
    """Mean total variation over rows."""
    return float((probs - others).abs().sum(-1).mean() / 2)


Records = list[dict[str, Any]]


def at(record: dict[str, Any], path: str) -> float:
    """A number of a record, such as ``methods/with/HMC/nll``."""
    found: Any = record
    for each in path.split("/"):
        found = found[each]
    return float(found)


def mean(records: Records, path: str, less: str | None = None) -> float:
    values = [at(record, path) - (0 if less is None else at(record, less)) for record in records]
    return sum(values) / len(values)


def interval(records: Records, path: str, less: str | None = None, *, factor: float = 1, digits: int = 3) -> str:
    """Mean over tables and seeds, with the 95 % interval of the means over tables of each seed."""
    seeds = sorted({record["seed"] for record in records})
    means = [factor * mean([record for record in records if record["seed"] == seed], path, less) for seed in seeds]
    found = compute_difference(means, seeds=len(seeds))
    ends = "" if found.low is None else f" [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"
    return f"{found.mean:+.{digits}f}{ends}"


def print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def print_tables(records: Records) -> None:
    names = [name for name in TABLES if any(record["data"] == name for record in records)]
    of = {name: [record for record in records if record["data"] == name] for name in names}
    first, points = records[0], {"factor": 100, "digits": 1}
    rows = [
        [name, words]
        + [
            f"{mean(of[name], f'hmc/{words}/{key}'):.3f}"
            for key in ("step", "acceptance", "r_hat", "r_hat_95", "between")
        ]
        for name in names
        for words in ("without", "with")
    ]
    heads = ["table", "summary", "step size", "acceptance", "R-hat, median", "R-hat, 95 %", "between chains"]
    print_table("HMC, means over seeds", heads, rows)
    for words in ("without", "with"):
        rows = []
        for path in (f"methods/{words}/{each}" for each in first["methods"][words]):
            row = [path.split("/")[-1], *(f"{mean(of[name], f'{path}/tv'):.3f}" for name in names)]
            row += [f"{mean(records, f'{path}/tv'):.3f}", f"{mean(records, f'{path}/nll'):.3f}"]
            row += [interval(records, f"{path}/nll", f"methods/{words}/HMC/nll")]
            rows.append([*row, *(f"{100 * mean(records, f'{path}/{each}'):.1f}" for each in ("ece", "accuracy"))])
        heads = ["method", *names, "mean distance", "NLL", "NLL less HMC", "ECE, %", "accuracy, %"]
        print_table(f"Distance to HMC, {words} the summary", heads, rows)
    rows = []
    for each in first["methods"]["with"]:
        after, before = (f"methods/{words}/{each}" for words in ("with", "without"))
        row = [each, *(f"{mean(of[name], f'{after}/nll', f'{before}/nll'):+.3f}" for name in names)]
        row += [interval(records, f"{after}/nll", f"{before}/nll")]
        rows.append([*row, interval(records, f"{after}/ece", f"{before}/ece", **points)])
    print_table("With the summary less without", ["method", *names, "NLL", "ECE, points"], rows)
    rows = []
    for each, beliefs in first["weights"].items():
        for path in (f"weights/{each}/{belief}" for belief in beliefs):
            row = [each, path.split("/")[-1], *(f"{mean(of[name], f'{path}/nll'):+.3f}" for name in names)]
            row += [interval(records, f"{path}/nll"), interval(records, f"{path}/ece", **points)]
            sizes = [f"{mean(of[name], f'{path}/effective'):.0f}" for name in names]
            rows.append([*row, f"{', '.join(sizes)} of {at(first, f'{path}/samples'):.0f}"])
    heads = ["samples", "statement", *names, "NLL", "ECE, points", "effective samples"]
    print_table("Weights by a belief less equal weights, NLL", heads, rows)
    print_choices(records)


def print_choices(records: Records) -> None:
    first, rows, differences = records[0], [], []
    for each, chosen in first["choices"].items():
        paths = {how: f"choices/{each}/{how}/nll" for how in chosen}
        rows.append([each, *(f"{mean(records, path):.3f}" for path in paths.values())])
        for belief in ("belief", "wrong belief"):
            others = ("start", "20 labels", "100 labels", "all labels")
            differences.append([each, belief, *(interval(records, paths[belief], paths[other]) for other in others)])
    print_table("Test NLL at the chosen value", ["posterior", *chosen], rows)
    heads = ["posterior", "statement", "less start", "less 20 labels", "less 100 labels", "less all labels"]
    print_table("Differences of these", heads, differences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file of JSON lines; splits that it holds are not repeated")
    parser.add_argument("--data", nargs="*", default=[each for each in TABLES if each != PILOT], choices=list(TABLES))
    parser.add_argument("--seeds", nargs="*", type=int, default=[500, 501, 502, 503, 504])
    parser.add_argument("--curvature", action="store_true", help="only choose the initial curvature")
    options = parser.parse_args()
    run, show = (measure_curvature, print_choices) if options.curvature else (measure, print_tables)
    lines = options.out.read_text().splitlines() if options.out is not None and options.out.exists() else []
    records = [json.loads(line) for line in lines]
    known = {(record["data"], record["seed"]) for record in records}
    for seed in options.seeds:
        for name in options.data:
            if (name, seed) in known:
                continue
            records.append(run(name, seed))
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(records[-1]) + "\n")
    seconds = sum(record["cpu_seconds"] for record in records)
    print(
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, {seconds:.0f} s of CPU"
    )
    show(records)


if __name__ == "__main__":
    main()

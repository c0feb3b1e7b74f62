"""Posteriors against chains, exact solutions and loops: of many labels, of a regression, of dropout."""

from __future__ import annotations

import math

import torch
from seeded import noise
from torch import Tensor, nn
from unit.training.toys import blobs, network, summary

import selbo
from selbo.posteriors import LastLayerLaplace, MCDropout, NaturalGradient, NaturalGradientPosterior


def test_it_is_the_posterior_of_many_labels(seed: int) -> None:
    """Independent chains of HMC for a logistic regression: with many labels the posterior is almost Gaussian."""
    generator, num_data, chains = noise(seed), 400, 300
    features = torch.randn(num_data, 2, generator=generator, dtype=torch.float64)
    truth = torch.tensor([[1.0, -0.5], [-1.0, 0.5]], dtype=torch.float64)
    classes = torch.multinomial((features @ truth.T).softmax(-1), 1, generator=generator).squeeze(1)

    def log_posterior(flat: Tensor) -> Tensor:
        log_probs = (features @ flat.view(-1, 2, 2).mT).log_softmax(-1)
        return log_probs[:, range(num_data), classes].sum(-1) - 0.5 * flat.square().sum(-1)

    found = selbo.hmc(
        log_posterior,
        truth.flatten().expand(chains, 4).clone(),
        num_samples=1,
        step_size=0.06,
        leapfrog_steps=12,
        burn_in=14,
        generator=generator,
    ).samples[0]
    net = nn.utils.skip_init(nn.Linear, 2, 2, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(found.mean(0).view(2, 2))
    posterior = LastLayerLaplace(net, prior_precision=1.0)
    posterior.observe(features)
    # the difference of the classes is what the labels determine
    contrast = torch.tensor([[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, -1.0]], dtype=torch.float64)
    expected = (contrast @ posterior.covariance() @ contrast.T).diagonal().sqrt()
    ratios = (found @ contrast.T).std(0) / expected
    assert (ratios - 1).abs().max() < 5 / math.sqrt(2 * chains)


def test_linear_regression_has_the_exact_posterior(seed: int) -> None:
    """Known noise: the best Gaussian with independent weights has the exact mean and the diagonal of the precision.

    One parameter holds 100 copies of the problem, each with draws of its own, over which averages are taken.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(200, 4, generator=generator, dtype=torch.float64)
    inputs[:, 1] += 0.5 * inputs[:, 0]
    targets = inputs @ torch.tensor([1.0, -1.0, 0.5, 0.0], dtype=torch.float64)
    targets = targets + torch.randn(200, generator=generator, dtype=torch.float64)
    precision = inputs.T @ inputs + torch.eye(4) / 0.5**2
    weights = nn.Parameter(torch.zeros(4, 100, dtype=torch.float64))
    optimizer = NaturalGradient([weights], lr=0.3, num_data=200, prior_std=0.5, betas=(0.9, 0.995), seed=seed)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1500)
    for _ in range(1500):
        optimizer.zero_grad()
        with optimizer.sampled():
            (0.5 * (inputs @ weights - targets[:, None]).square()).mean(0).sum().backward()
        optimizer.step()
        schedule.step()
    exact = torch.linalg.solve(precision, inputs.T @ targets)
    error = (weights.detach() - exact[:, None]) * precision.diagonal()[:, None].sqrt()  # in standard deviations
    assert error.mean(1).abs().max() < 0.02
    assert error.std(1).max() < 0.1
    found = (optimizer.std(weights) ** -2).mean(1)
    torch.testing.assert_close(found, precision.diagonal(), rtol=0.03, atol=0.0)


def test_predictions_are_those_of_a_loop_in_training_mode(seed: int) -> None:
    """Masks per input or per sample: the mean prediction for each input is the same."""
    net = selbo.models.MLP((4, 7, 5, 3), dropout=0.4, generator=noise(seed)).double()
    inputs, count = torch.randn(6, 4, generator=noise(3), dtype=torch.float64), 2000
    posterior = MCDropout(net)
    ours = posterior.log_probs(inputs, count, generator=noise(seed)).exp()
    assert all(each.training for each in net.modules()), "the mode is as before"
    with torch.no_grad(), torch.random.fork_rng():
        torch.default_generator.manual_seed(seed)
        theirs = torch.stack([net(inputs).softmax(-1) for _ in range(count)])
    error = ((ours.var(0) + theirs.var(0)) / count).sqrt()
    assert ((ours.mean(0) - theirs.mean(0)) / error).abs().max() < 5
    assert (ours.std(0) / theirs.std(0) - 1).abs().max() < 0.2
    mean = selbo.predict(posterior, inputs, count, generator=noise(seed)).probs
    torch.testing.assert_close(mean, ours.mean(0))


def test_a_natural_gradient_learns_and_predicts_with_uncertainty(seed: int) -> None:
    settings = {"prior_std": 0.5, "initial_curvature": 0.3, "betas": (0.9, 0.99), "temperature": 0.5}
    posterior = NaturalGradientPosterior(network(seed=seed), num_data=60, **settings)
    objective, val = selbo.CrossEntropy(60, summary()), blobs(41, seed=1)
    options = {"steps": 300, "batch_size": 16, "learning_rate": 0.05, "num_samples": 2, "seed": seed}
    result = selbo.fit(posterior, objective, blobs(60), **options)
    prediction = selbo.predict(result.posterior, val[0], 32, generator=noise(seed))
    found = selbo.evaluate(prediction.probs, val[1])
    assert found["accuracy"] > 0.6
    assert found["nll"] < math.log(3) - 0.1
    assert prediction.mutual_information.mean() > 1e-4

"""Each objective against the same quantity by other means: explicit draws, torch.distributions, quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn
from torch.distributions import Categorical, Dirichlet, Normal
from torch.nn import functional as F
from unit.nn.nets import leaves, reference, weight_names
from unit.objectives.cases import BATCH, F64, NUM_DATA, inputs, noise, plain_net

import selbo
from selbo.nn import to_bayesian
from selbo.nn.gaussian import draw_noise, gaussians
from selbo.objectives import ELBO, CrossEntropy, Evidential, LabelSmoothing, Objective, SummaryELBO
from selbo.objectives.likelihoods import ACTIVATIONS, LOSSES, misleading_evidence
from selbo.posteriors import MeanField

EXACT = {"rtol": 1e-10, "atol": 1e-10}
DRAWS = 4
PRIOR_STD = 0.7


def close(got, expected, **tolerance) -> None:
    torch.testing.assert_close(got, expected, **(tolerance or EXACT))


def normal(mean: float, std: float) -> Normal:
    return Normal(torch.tensor(mean, dtype=F64), torch.tensor(std, dtype=F64))  # plain numbers would become float32


class Free(nn.Module):
    """Logits that depend on nothing, one row an input."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, x: Tensor) -> Tensor:
        return self.logits[: len(x)]


def free_logits(rows: int = BATCH, classes: int = 3, scale: float = 2.0, seed: int = 4) -> Tensor:
    return scale * torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=F64)


# --- ELBO and Summary ELBO, draw by draw ---


def brute_force(net: nn.Module, bnn: nn.Module, labels: Tensor, *, s0=None, concentration=None, histogram=None):
    """Terms from draw after draw of the plain network with explicit weights; and the leaves to differentiate by."""
    of = leaves(net)
    of = {name: (mean, torch.full_like(mean, 0.3).requires_grad_()) for name, (mean, _) in of.items()}
    logits = reference(net, inputs(), draw_noise(gaussians(bnn), DRAWS, noise()), of)  # (S, B, K)
    log_likelihood = log_summary = torch.zeros((), dtype=F64)
    for draw in logits:
        cat = Categorical(logits=draw)
        log_likelihood = log_likelihood + NUM_DATA / BATCH * cat.log_prob(labels).sum() / DRAWS
        if s0 is not None:
            log_summary = log_summary + Dirichlet(concentration * histogram(cat.probs)).log_prob(s0) / DRAWS
    kl = sum(
        torch.distributions.kl_divergence(Normal(mean, std), normal(0.0, PRIOR_STD)).sum() for mean, std in of.values()
    )
    return log_likelihood, kl, log_summary, of


def mean_softmax(probs: Tensor) -> Tensor:
    return probs.mean(0)


def sigmoid_bins(probs: Tensor) -> Tensor:
    """Three closed bins of the score, as printed in the paper, with slope 20."""
    score, edges = probs[:, 1], [0.0, 0.3, 0.6, 1.0]
    above = [1 / (1 + torch.exp(-20 * (score - edge))) for edge in edges]
    counts = torch.stack([(above[r] - above[r + 1]).sum() for r in range(3)])
    return counts / counts.sum()


class SigmoidBins(selbo.Partition):
    """The same bins, as a partition that a user might write."""

    num_classes, num_regions = 2, 3

    def memberships(self, log_probs: Tensor) -> Tensor:
        edges = torch.tensor([0.0, 0.3, 0.6, 1.0], dtype=log_probs.dtype)
        above = torch.sigmoid(20 * (log_probs[..., 1:].exp() - edges))
        return above[..., :-1] - above[..., 1:]

    def assign(self, log_probs: Tensor) -> Tensor:
        return (log_probs[..., 1:].exp() > torch.tensor([0.3, 0.6], dtype=log_probs.dtype)).sum(-1)


SUMMARIES = {
    "mean softmax": (3, selbo.ClassRegions(3), selbo.Masses([0.5, 0.3, 0.2]), 40.0, mean_softmax),
    "closed bins": (
        2,
        SigmoidBins(),
        selbo.Masses([0.15, 0.25, 0.6]),
        7.5,
        sigmoid_bins,
    ),
}


def compare(objective: Objective, bnn: nn.Module, net: nn.Module, labels: Tensor, expected) -> None:
    log_likelihood, kl, log_summary, of = expected
    terms = objective(bnn, inputs(), labels, DRAWS, generator=noise())
    close(terms.log_likelihood, log_likelihood)
    close(terms.kl, kl)
    close(terms.log_summary, log_summary)
    total = log_likelihood - kl + log_summary
    close(terms.elbo, total)
    terms.loss.backward()
    wanted = torch.autograd.grad(-total / NUM_DATA, [leaf for pair in of.values() for leaf in pair])
    found = [
        gradient
        for each in gaussians(bnn)
        for gradient in (each.mean.grad, each.rho.grad / torch.sigmoid(each.rho.detach()))  # slope of softplus
    ]
    assert len(found) == len(wanted) == 2 * len(weight_names(net))
    for got, gradient in zip(found, wanted, strict=True):
        close(got, gradient)


def test_elbo_draw_by_draw() -> None:
    """Eq. (1), its two terms, with Eq. (6) as torch.distributions has it; value and gradient."""
    net = plain_net()
    bnn = to_bayesian(net, prior_std=PRIOR_STD, init_std=0.3)
    labels = torch.arange(BATCH) ** 2 % 3
    compare(ELBO(NUM_DATA), bnn, net, labels, brute_force(net, bnn, labels))


@pytest.mark.parametrize("name", SUMMARIES)
def test_summary_elbo_draw_by_draw(name: str) -> None:
    """Eq. (7), last line: M draws, Categorical, Dirichlet density of each histogram, KL of normals."""
    classes, partition, belief, concentration, histogram = SUMMARIES[name]
    net = plain_net(classes)
    bnn = to_bayesian(net, prior_std=PRIOR_STD, init_std=0.3)
    labels = torch.arange(BATCH) ** 2 % classes
    s0 = torch.tensor(belief.values, dtype=F64)
    objective = SummaryELBO(selbo.SummaryLikelihood(partition, belief, concentration), NUM_DATA)
    compare(
        objective,
        bnn,
        net,
        labels,
        brute_force(net, bnn, labels, s0=s0, concentration=concentration, histogram=histogram),
    )


def test_cross_entropy_with_a_summary() -> None:
    net, labels = plain_net(), torch.arange(BATCH) ** 2 % 3
    _, partition, belief, concentration, _ = SUMMARIES["mean softmax"]
    terms = CrossEntropy(NUM_DATA, selbo.SummaryLikelihood(partition, belief, concentration))(net, inputs(), labels)
    logits = net(inputs())
    close(terms.log_likelihood, -NUM_DATA * F.cross_entropy(logits, labels))
    s0 = torch.tensor(belief.values, dtype=F64)
    close(terms.log_summary, Dirichlet(concentration * logits.softmax(-1).mean(0)).log_prob(s0))
    assert terms.kl == 0


# --- the bound: one weight, every integral by quadrature ---


class OneWeight(nn.Module):
    """Logits (0, w x)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.skip_init(nn.Linear, 1, 1, bias=False, dtype=F64)
        nn.init.constant_(self.layer.weight, 0.8)

    def forward(self, x: Tensor) -> Tensor:
        slope = self.layer(x)
        return torch.cat([torch.zeros_like(slope), slope], -1)


@pytest.mark.parametrize("with_summary", [False, True])
def test_the_bound_is_evidence_less_divergence_from_the_posterior(with_summary: bool, monkeypatch) -> None:
    """log p(Y, s0 | X) - KL(q | p(w | Y, s0)) = Eq. (7), where Eq. (4) is the joint distribution on a fine grid.

    The left side knows no KL of normals and no draws; the right side is the library, its draws the nodes of a
    trapezoidal rule, whose error for such functions falls exponentially.
    """
    x = torch.tensor([[-1.5], [0.3], [0.7], [2.0]], dtype=F64)
    labels = torch.tensor([0, 1, 0, 1])
    _, partition, belief, concentration, histogram = SUMMARIES["closed bins"]
    s0, std, prior_std = torch.tensor(belief.values, dtype=F64), 0.5, 1.3
    bnn = to_bayesian(OneWeight(), prior_std=prior_std, init_std=std)

    grid = torch.linspace(-9, 11, 40_001, dtype=F64)
    log_joint = normal(0.0, prior_std).log_prob(grid)
    by_class = Categorical(logits=torch.stack([torch.zeros_like(grid * x), grid * x], -1))  # (4, grid)
    log_joint = log_joint + by_class.log_prob(labels[:, None]).sum(0)
    if with_summary:
        score = by_class.probs[..., 1]
        above = [torch.sigmoid(20 * (score - edge)) for edge in (0.0, 0.3, 0.6, 1.0)]
        counts = torch.stack([(above[r] - above[r + 1]).sum(0) for r in range(3)], -1)
        histograms = counts / counts.sum(-1, keepdim=True)
        close(histograms[20_800], histogram(by_class.probs[:, 20_800]))
        log_joint = log_joint + Dirichlet(concentration * histograms).log_prob(s0)
    step = grid[1] - grid[0]
    log_evidence = (log_joint.logsumexp(0) + step.log()).item()
    log_posterior = log_joint - log_evidence
    log_q = normal(0.8, std).log_prob(grid)
    divergence = ((log_q.exp() * (log_q - log_posterior)).sum() * step).item()
    assert divergence > 0.01

    num_data = len(x)
    objective = (
        SummaryELBO(selbo.SummaryLikelihood(partition, belief, concentration), num_data)
        if with_summary
        else ELBO(num_data)
    )
    nodes = np.linspace(-9, 9, 121)
    bound = 0.0
    for node, weight in zip(nodes, stats.norm.pdf(nodes) * 18 / 120, strict=True):
        noise = torch.tensor([[node]], dtype=F64)
        monkeypatch.setattr(MeanField, "draw_noise", lambda *_, noise=noise: noise)
        bound += weight * objective(bnn, x, labels).elbo.item()
    assert bound == pytest.approx(log_evidence - divergence, abs=1e-10)
    assert bound < log_evidence


# --- label smoothing ---


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.6])
def test_label_smoothing_is_torchs(epsilon: float) -> None:
    """On logits: the authors' code passed probabilities, a bounded loss that rewards being sure."""
    net, labels = plain_net(), torch.arange(BATCH) ** 2 % 3
    terms = LabelSmoothing(epsilon, NUM_DATA)(net, inputs(), labels)
    close(terms.loss, F.cross_entropy(net(inputs()), labels, label_smoothing=epsilon))
    bnn = to_bayesian(net, init_std=0.3)
    terms = LabelSmoothing(epsilon, NUM_DATA)(bnn, inputs(), labels, DRAWS, generator=noise())
    by_sample = selbo.forward_samples(bnn, inputs(), DRAWS, generator=noise())
    losses = [F.cross_entropy(draw, labels, label_smoothing=epsilon) for draw in by_sample]
    close(terms.log_likelihood, -NUM_DATA * torch.stack(losses).mean())
    close(terms.loss, torch.stack(losses).mean() + selbo.kl_divergence(bnn) / NUM_DATA)


@pytest.mark.parametrize(("epsilon", "classes"), [(0.05, 2), (0.1, 3), (0.4, 5)])
def test_the_best_prediction_under_label_smoothing(epsilon: float, classes: int) -> None:
    free, labels = Free(free_logits(6, classes)), torch.arange(6) % classes
    objective = LabelSmoothing(epsilon, 6)
    optimiser = torch.optim.LBFGS(
        free.parameters(), max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = objective(free, torch.zeros(6, 1), labels).loss
        loss.backward()
        return loss

    optimiser.step(closure)
    probs = free.logits.detach().softmax(-1)
    expected = torch.full((6, classes), epsilon / classes, dtype=F64)
    expected[torch.arange(6), labels] += 1 - epsilon
    close(probs, expected, rtol=1e-5, atol=1e-6)


# --- evidence ---


def by_definition(activation: str, logits: Tensor) -> Tensor:
    evidence = {"softplus": lambda z: (1 + z.exp()).log(), "relu": lambda z: z * (z > 0), "exp": torch.exp}
    return 1 + evidence[activation](logits)


def expected_by_integration(alpha: Tensor, label: int, loss: str) -> float:
    """Expected loss under Dirichlet(alpha), from the marginals, which are Beta distributions."""
    a, rest = alpha.tolist(), alpha.sum().item()
    marginal = [stats.beta(each, rest - each) for each in a]
    if loss == "log_marginal":
        return -math.log(integrate.quad(lambda p: p * marginal[label].pdf(p), 0, 1, epsabs=1e-13)[0])
    if loss == "cross_entropy":
        return integrate.quad(lambda p: -math.log(p) * marginal[label].pdf(p), 0, 1, epsabs=1e-13)[0]
    return sum(
        integrate.quad(lambda p, k=k: ((k == label) - p) ** 2 * marginal[k].pdf(p), 0, 1, epsabs=1e-13)[0]
        for k in range(len(a))
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_evidential_losses_are_expectations(loss: str, activation: str) -> None:
    logits, labels = free_logits(5, 3), torch.tensor([0, 2, 1, 1, 2])
    terms = Evidential(40, loss=loss, activation=activation)(Free(logits), torch.zeros(5, 1), labels)
    alpha = by_definition(activation, logits)
    expected = [expected_by_integration(row, int(label), loss) for row, label in zip(alpha, labels, strict=True)]
    assert terms.log_likelihood.item() == pytest.approx(-40 * sum(expected) / 5, rel=1e-8)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_evidential_divergence_is_that_of_dirichlet_distributions(activation: str) -> None:
    logits, labels = free_logits(7, 4, scale=3.0), torch.tensor([0, 2, 1, 1, 3, 3, 3])
    terms = Evidential(40, activation=activation)(Free(logits), torch.zeros(7, 1), labels)
    misleading = by_definition(activation, logits)
    misleading[torch.arange(7), labels] = 1.0  # evidence for the label does not mislead
    kl = torch.distributions.kl_divergence(Dirichlet(misleading), Dirichlet(torch.ones(4, dtype=F64)))
    close(terms.kl, 40 * kl.mean())


def test_evidential_divergence_in_single_precision() -> None:
    """Log-gamma functions of 1e5 cancel to some ten nats; where there is no evidence the divergence is not negative."""
    generator, labels = torch.Generator().manual_seed(0), torch.arange(1000) % 10
    large = 1 + torch.exp(10 * torch.rand(1000, 10, generator=generator))
    close(misleading_evidence(large, labels).double(), misleading_evidence(large.double(), labels), rtol=1e-6, atol=0)
    small = 1 + 1e-3 * torch.rand(1000, 100, generator=generator)
    assert (misleading_evidence(small, labels) >= 0).all()
    close(
        misleading_evidence(small, labels).double(), misleading_evidence(small.double(), labels), rtol=1e-6, atol=1e-12
    )
    assert misleading_evidence(small, labels).dtype == torch.float32


def test_exponential_evidence_is_bounded() -> None:
    alpha = Evidential(9, activation="exp").likelihood.alpha(torch.tensor([0.0, 10.0, 11.0, 1e6]))
    close(alpha, torch.tensor([2.0, 1 + math.exp(10), 1 + math.exp(10), 1 + math.exp(10)]), rtol=1e-6, atol=0)

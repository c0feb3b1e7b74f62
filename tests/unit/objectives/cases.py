"""Every objective with the networks it is for, small enough to be tried from all sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor, nn

import selbo
from selbo.nn import to_bayesian
from selbo.objectives import (
    ELBO,
    CrossEntropy,
    EntropyMinimisation,
    Evidential,
    ExpectationRegularisation,
    LabelSmoothing,
    Objective,
    SummaryELBO,
    Terms,
)
from selbo.objectives.likelihoods import ACTIVATIONS, LOSSES
from selbo.posteriors import kl_divergence

NUM_DATA = 60  # N; a batch has 12, so N/B is 5
BATCH = 12
FEATURES = 4
F64 = torch.float64


class Raise(nn.Module):
    """Adds a number, so that all logits are positive and a relu lets every gradient through."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 4.0


def plain_net(classes: int = 3, *, raised: bool = False, norm: bool = False, seed: int = 1) -> nn.Module:
    """4-5-K, smooth, so that every weight has a gradient."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        # a bias before BatchNorm has no effect
        inner = [nn.Linear(FEATURES, 5, bias=not norm), *([nn.BatchNorm1d(5)] if norm else []), nn.Tanh()]
        return nn.Sequential(*inner, nn.Linear(5, classes), *([Raise()] if raised else [])).double()


def shells() -> selbo.SummaryLikelihood:
    """Seven unequal regions of three classes."""
    return selbo.SummaryLikelihood(selbo.CornerShells(3, [0.6, 0.8]), selbo.Dirichlet([0.6, 0.9, 1.4]), 20.0)


def bins() -> selbo.SummaryLikelihood:
    """Three unequal bins of two classes."""
    return selbo.SummaryLikelihood(selbo.ScoreBins([0.3, 0.8]), selbo.Beta(0.7, 1.6), 30.0)


@dataclass(frozen=True)
class Case:
    """One objective on one kind of network."""

    name: str
    make: Callable[[int], Objective]
    bayesian: bool
    classes: int = 3
    raised: bool = False  # logits above zero, for relu
    shared: bool = True  # the draws are one set of weights for all inputs
    whole: bool = False  # the summary looks at the batch as a whole
    by_data: bool = False  # kl or the further term is a sum over the data, too
    kl: Callable[[nn.Module], Tensor] = kl_divergence  # the divergence that is held against the fit
    density: tuple[float, ...] = ()  # parameters of the Dirichlet density that each prediction is scored by

    def objective(self, num_data: int = NUM_DATA) -> Objective:
        return self.make(num_data)

    def net(self, *, norm: bool = False, init_std: float = 0.2) -> nn.Module:
        net = plain_net(self.classes, raised=self.raised, norm=norm)
        return to_bayesian(net, init_std=init_std) if self.bayesian else net

    def labels(self, count: int = BATCH) -> Tensor:
        """Of all classes, not equally often."""
        return (torch.arange(count) ** 2) % self.classes


def inputs(seed: int = 3, count: int = BATCH) -> Tensor:
    return torch.randn(count, FEATURES, generator=torch.Generator().manual_seed(seed), dtype=F64)


def noise(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def terms_of(case: Case, model: nn.Module, objective: Objective | None = None, **options: object) -> Terms:
    """Three draws on the usual batch, always with the same noise."""
    objective = case.objective() if objective is None else objective
    return objective(model, inputs(), case.labels(), 3, generator=noise(), **options)


def further(terms: Terms) -> Tensor:
    """The further terms, whatever they are called, added up."""
    return sum(terms.by_name.values(), torch.zeros_like(terms.log_likelihood))


CASES = [
    Case("cross entropy", CrossEntropy, bayesian=False),
    Case("cross entropy, summary", lambda n: CrossEntropy(n, shells()), bayesian=False, whole=True),
    Case("label smoothing", lambda n: LabelSmoothing(0.1, n), bayesian=False),
    Case("label smoothing, Bayesian", lambda n: LabelSmoothing(0.1, n), bayesian=True),
    *(
        Case(
            f"evidential, {loss}, {activation}",
            lambda n, loss=loss, activation=activation: Evidential(n, loss=loss, activation=activation),
            bayesian=False,
            raised=activation == "relu",
            by_data=True,
        )
        for loss in LOSSES
        for activation in ACTIVATIONS
    ),
    Case("elbo", ELBO, bayesian=True),
    Case("elbo, local", lambda n: ELBO(n, estimator="local"), bayesian=True, shared=False),
    Case("elbo, flipout", lambda n: ELBO(n, estimator="flipout"), bayesian=True, shared=False),
    Case("summary elbo", lambda n: SummaryELBO(shells(), n), bayesian=True, whole=True),
    Case("summary elbo, two classes", lambda n: SummaryELBO(bins(), n), bayesian=True, classes=2, whole=True),
    Case(
        "summary elbo, flipout",
        lambda n: SummaryELBO(shells(), n, estimator="flipout", accept_approximation=True),
        bayesian=True,
        whole=True,
        shared=False,
    ),
    Case("entropy minimisation", EntropyMinimisation, bayesian=False, by_data=True),
    Case(
        "expectation regularisation",
        lambda n: ExpectationRegularisation([0.5, 0.2, 0.3], n, temperature=0.7),
        bayesian=False,
        whole=True,
        by_data=True,
    ),
]
if find_spec("selbo_lab") is not None:  # its objectives are held to the same rules
    from selbo_lab import published

    CASES += [
        Case(
            "elbo, published",
            lambda n: published.with_published_kl(ELBO(n)),
            bayesian=True,
            kl=published.published_kl,
        ),
        Case(
            "independent summary",
            lambda n: published.IndependentSummary(selbo.Dirichlet([0.6, 0.9, 1.4]), n),
            bayesian=False,
            by_data=True,
            density=(0.6, 0.9, 1.4),
        ),
        Case(
            "independent summary, Bayesian",
            lambda n: published.IndependentSummary(selbo.Beta(0.7, 1.6), n),
            bayesian=True,
            classes=2,
            by_data=True,
            density=(1.6, 0.7),
        ),
        Case(
            "independent summary, uniform",
            lambda n: published.IndependentSummary(selbo.Uniform(), n),
            bayesian=False,
            by_data=True,
            density=(1.0, 1.0, 1.0),
        ),
    ]
SUMMARY_CASES = [case for case in CASES if case.objective().has_summary]
OTHER_CASES = [case for case in CASES if not case.objective().has_summary]

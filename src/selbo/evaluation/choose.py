"""Choose a number, such as the scale of a posterior, by a belief about predictions on unlabelled inputs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from selbo import _checks
from selbo.objectives import Objective
from selbo.objectives.predictive import predictive_log_probs
from selbo.posteriors import Posterior
from selbo.summary.likelihood import SummaryLikelihood

BOUNDS: Final = {"scale": (1 / 16, 16.0), "prior_precision": (1e-4, 1e6)}
"""Default intervals of the search."""

GRID_SIZE: Final = 13
"""Values of the first part of a search, equally spaced in the logarithm."""

LOG_TOLERANCE: Final = 0.01
"""Width of the last interval of a search, in the logarithm: finer than the noise of the samples allows to tell."""


@dataclass(frozen=True)
class BeliefChoice:
    """A value chosen by `choose_by_belief` or `choose_scale`.

    Attributes:
        value: The value of the largest likelihood.
        candidates: All values that were tried, increasing.
        log_likelihoods: Log-likelihood of the summary with each of them, in nats.
    """

    value: float
    candidates: tuple[float, ...]
    log_likelihoods: tuple[float, ...]

    @property
    def is_at_bound(self) -> bool:
        """Whether the value is the smallest or the largest one that was tried, so that others may be better."""
        return self.value in {self.candidates[0], self.candidates[-1]}


def choose_by_belief(
    log_probs_of: Callable[[float], Tensor],
    summary: SummaryLikelihood,
    *,
    candidates: Sequence[float] | None = None,
    bounds: tuple[float, float] | None = None,
) -> BeliefChoice:
    r"""Choose a positive number by the likelihood of a summary, without labels.

    It may be any number that predictions depend on; the result has the largest
    $\log \mathrm{DP}(s_0 \mid s_\theta, \alpha)$. Give candidates, or bounds for a search: over equally spaced
    logarithms first, then between the neighbours of the best one.

    Args:
        log_probs_of: Function of a candidate that returns log-probabilities (B, K), or (S, B, K) for several samples
            whose likelihoods are averaged, for the same inputs each time. The belief is about these predictions.
        summary: The belief, as a summary with its concentration.
        candidates: Values to try; at least two, greater than 0.
        bounds: Smallest and largest value of a search, instead of candidates.

    Example:
        >>> import selbo
        >>> summary = selbo.SummaryLikelihood(
        ...     selbo.ConfidenceBins([0.6, 0.8], num_classes=2),
        ...     selbo.Masses([0.2, 0.3, 0.5]),
        ...     100.0,
        ... )
        >>> logits = torch.linspace(-4, 4, 101)[:, None] * torch.tensor([0.0, 1.0])
        >>> found = choose_by_belief(
        ...     lambda temperature: (logits / temperature).log_softmax(-1),
        ...     summary,
        ...     candidates=[0.5, 1.0, 2.0],
        ... )
        >>> found.value
        1.0
    """
    if not isinstance(summary, SummaryLikelihood):
        raise ValueError(f"`summary` must be a selbo.SummaryLikelihood, but got {type(summary).__name__}")
    if (candidates is None) == (bounds is None):
        raise ValueError("one of `candidates` and `bounds` must be given")
    tried: dict[float, float] = {}

    def likelihood(value: float) -> float:
        if value not in tried:
            with torch.no_grad():
                tried[value] = float(summary(log_probs_of(value).detach()).double().mean())
            if not math.isfinite(tried[value]):
                raise ValueError(
                    f"`log_probs_of` must give a finite likelihood, but for {value:g} it is {tried[value]}"
                )
        return tried[value]

    if candidates is not None:
        values = sorted({_checks.positive("candidates", each) for each in candidates})
        if len(values) < 2:
            raise ValueError(f"`candidates` must hold at least two values, but got {list(candidates)}")
        for value in values:
            likelihood(value)
    else:
        assert bounds is not None
        _search(likelihood, bounds)
    ordered = tuple(sorted(tried))
    return BeliefChoice(max(ordered, key=tried.__getitem__), ordered, tuple(tried[value] for value in ordered))


def choose_scale(
    posterior: Posterior,
    inputs: Tensor,
    summary: SummaryLikelihood,
    *,
    setting: str = "scale",
    candidates: Sequence[float] | None = None,
    bounds: tuple[float, float] | None = None,
    num_samples: int = 32,
    seed: int = 0,
    objective: Objective | None = None,
) -> BeliefChoice:
    """Set the scale of a posterior, or another of its numbers, by a belief about predictions on unlabelled inputs.

    The standard deviations of weights are often wrong by a factor, and others choose that factor on labels: the
    posterior temperature, the prior precision of Laplace, the scale of SWAG. Here it is the value with the largest
    likelihood of the summary. The belief is about the predictions that are used, the mean over samples, so state the
    accuracy of that prediction. All values are tried with the same noise.

    A larger scale makes predictions less confident. If they are already less confident than the belief at the smallest
    scale, the result is that bound: `BeliefChoice.is_at_bound`. Calibrate the predictions instead.

    Args:
        posterior: A posterior with standard deviations: `MeanField`, `NaturalGradientPosterior`, `SWAG` or
            `LastLayerLaplace`. Its setting is changed in place. For a network made by `to_bayesian`, pass
            ``selbo.posteriors.as_posterior(network)`` here and afterwards to `predict`.
        inputs: Unlabelled inputs that the belief is about, shape (B, ...), on the device of the network; not the
            training inputs, for which the predictions are too confident.
        summary: The belief, as a summary with its concentration.
        setting: Name of the number: ``"scale"``, or ``"prior_precision"`` of `LastLayerLaplace`.
        candidates: Values to try; a search between the bounds if not given.
        bounds: Smallest and largest value of the search; from 1/16 to 16 for a scale.
        num_samples: Number of weight samples per prediction; use as many as in later predictions.
        seed: Seed for the samples.
        objective: Training objective; required if outputs are not logits of a softmax (`Evidential`).

    Returns:
        The chosen value, and all that were tried with their likelihoods.

    Example:
        >>> import selbo
        >>> generator = torch.Generator().manual_seed(0)
        >>> with torch.random.fork_rng():
        ...     bnn = selbo.to_bayesian(torch.nn.Linear(4, 2), init_std=0.1)
        >>> posterior = selbo.posteriors.as_posterior(bnn)
        >>> summary = selbo.SummaryLikelihood(
        ...     selbo.ScoreBins.equal(10), selbo.expect(accuracy=0.6), concentration=50.0
        ... )
        >>> inputs = 5 * torch.randn(200, 4, generator=generator)
        >>> found = choose_scale(posterior, inputs, summary, candidates=[0.5, 1.0, 32.0])
        >>> found.value, posterior.scale
        (32.0, 32.0)
    """
    if not isinstance(posterior, Posterior):
        raise ValueError(
            f"`posterior` must be a selbo posterior, but got {type(posterior).__name__}: for a network made by "
            "`to_bayesian` pass selbo.posteriors.as_posterior(network)"
        )
    _checks.one_of("setting", setting, BOUNDS)
    if not hasattr(posterior, setting) or not posterior.can_scale:
        raise ValueError(
            f"`posterior` must have a {setting.replace('_', ' ')}, but {type(posterior).__name__} has none"
        )
    _checks.whole("num_samples", num_samples, at_least=1)
    if candidates is None and bounds is None:
        bounds = BOUNDS[setting]
    before = getattr(posterior, setting)

    def log_probs(value: float) -> Tensor:
        setattr(posterior, setting, value)
        noise = torch.Generator(posterior.device).manual_seed(_checks.whole("seed", seed, at_least=0))
        return predictive_log_probs(posterior, inputs, num_samples=num_samples, objective=objective, generator=noise)

    try:
        found = choose_by_belief(log_probs, summary, candidates=candidates, bounds=bounds)
    except BaseException:
        setattr(posterior, setting, before)
        raise
    setattr(posterior, setting, found.value)
    return found


def _search(likelihood: Callable[[float], float], bounds: tuple[float, float]) -> None:
    """Try values between two bounds: a grid, then Brent's method around its best value."""
    from scipy.optimize import minimize_scalar

    low, high = (math.log(_checks.positive("bounds", bound)) for bound in bounds)
    if not low < high:
        raise ValueError(f"`bounds` must be increasing, but got {bounds!r}")
    grid = [low + (high - low) * i / (GRID_SIZE - 1) for i in range(GRID_SIZE)]
    values = [likelihood(math.exp(each)) for each in grid]
    best = values.index(max(values))
    around = grid[max(0, best - 1)], grid[min(GRID_SIZE - 1, best + 1)]
    minimize_scalar(
        lambda each: -likelihood(math.exp(each)), bounds=around, method="bounded", options={"xatol": LOG_TOLERANCE}
    )

r"""Common objectives: each translates its arguments into a likelihood, a `KL` and `Term`\ s of an `Objective`.

They share these arguments: ``num_data`` is N, the number of training examples, with and without label. ``kl_weight``
and ``kl_warmup`` are passed to `KL`, ``summary_weight`` and ``summary_warmup`` to the `Term` of each summary, a
`SummaryLikelihood` or a `GroupedSummary`. Other settings (``estimator``, ``accept_approximation``, ``label_shift``) are
passed to `Objective`.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from selbo import _checks
from selbo.objectives.likelihoods import DirichletEvidence, SmoothedCategorical
from selbo.objectives.objective import KL, Objective, Term
from selbo.objectives.regularisers import ClassFractions, negative_entropy
from selbo.summary.likelihood import Summary

Summaries: TypeAlias = Summary | Sequence[Summary]
"""One `SummaryLikelihood` or `GroupedSummary`, or a sequence of several."""


class ELBO(Objective):
    r"""The evidence lower bound, Eq. (1), for Bayesian networks.

    $$\mathrm{E}_q \sum_i \log p(y_i \mid x_i, \theta) - \mathrm{KL}(q \,\|\, p) .$$
    """

    for_deterministic = False

    def __init__(self, num_data: int, *, kl_weight: float = 1.0, kl_warmup: int = 0, **settings: Any) -> None:
        super().__init__(num_data, kl=_kl(kl_weight, kl_warmup), **settings)


class SummaryELBO(Objective):
    r"""The Summary ELBO, Eq. (7), the evidence lower bound of labels and summary together, Eq. (4).

    $$\mathrm{E}_q \Bigl[ \sum_i \log p(y_i \mid x_i, \theta) + \log \mathrm{DP}(s_0 \mid s_\theta, \alpha) \Bigr]
    - \mathrm{KL}(q \,\|\, p) .$$

    The expectation is a mean over weight samples. Each sample is shared by the whole batch, because a summary describes
    one function. The terms of several summaries (class fractions and confidence, or one per target domain) are added.

    Example:
        >>> import torch, selbo
        >>> with torch.random.fork_rng():
        ...     bnn = selbo.to_bayesian(torch.nn.Linear(4, 2))
        >>> summary = selbo.SummaryLikelihood(
        ...     selbo.ScoreBins.equal(5), selbo.expect(accuracy=0.9)
        ... )
        >>> objective = SummaryELBO(summary, num_data=100)
        >>> generator = torch.Generator().manual_seed(0)
        >>> terms = objective(
        ...     bnn, torch.ones(8, 4), torch.arange(8) % 2, num_samples=2, generator=generator
        ... )
        >>> torch.testing.assert_close(
        ...     terms.elbo, terms.log_likelihood - terms.kl + terms.log_summary
        ... )
    """

    for_deterministic = False

    def __init__(
        self,
        summary: Summaries,
        num_data: int,
        *,
        kl_weight: float = 1.0,
        kl_warmup: int = 0,
        summary_weight: float = 1.0,
        summary_warmup: int | None = None,
        **settings: Any,
    ) -> None:
        terms = _terms(summary, summary_weight, summary_warmup)
        super().__init__(num_data, kl=_kl(kl_weight, kl_warmup), terms=terms, **settings)


class CrossEntropy(Objective):
    """Log-likelihood of the labels and, if given, of one or several summaries: the paper's NN and NN + SL.

    Example:
        >>> import torch
        >>> inputs, labels = torch.zeros(4, 3), torch.tensor([0, 1, 1, 0])
        >>> # three equal logits: log 3
        >>> CrossEntropy(num_data=100)(torch.nn.Flatten(), inputs, labels).loss
        tensor(1.0986)
    """

    for_bayesian = False

    def __init__(
        self,
        num_data: int,
        summary: Summaries | None = None,
        *,
        summary_weight: float = 1.0,
        summary_warmup: int | None = None,
        **settings: Any,
    ) -> None:
        terms = [] if summary is None else _terms(summary, summary_weight, summary_warmup)
        super().__init__(num_data, terms=terms, **settings)


class LabelSmoothing(Objective):
    """Label smoothing, `SmoothedCategorical`, for deterministic networks and, with the KL, for Bayesian ones.

    For an example whose label is certain, the optimal predicted probability is 1 - epsilon + epsilon / K.
    """

    def __init__(
        self, epsilon: float, num_data: int, *, kl_weight: float = 1.0, kl_warmup: int = 0, **settings: Any
    ) -> None:
        super().__init__(num_data, SmoothedCategorical(epsilon), _kl(kl_weight, kl_warmup), **settings)


class Evidential(Objective):
    """Evidential deep learning, `DirichletEvidence`: the network predicts a Dirichlet distribution.

    By Sensoy, Kaplan and Kandemir (2018). ``kl`` is the divergence of the misleading evidence. Its weight grows over
    ``annealing_steps`` *steps* (the ``warmup`` of `KL`). With ``annealing_every`` (the ``every`` of `KL`) it grows
    stepwise; set it to the number of steps per epoch to match the code of the Summary ELBO's authors.
    """

    for_bayesian = False

    def __init__(
        self,
        num_data: int,
        *,
        loss: str = "mean_square",
        activation: str = "softplus",
        kl_weight: float = 1.0,
        annealing_steps: int = 1000,
        annealing_every: int | None = None,
        **settings: Any,
    ) -> None:
        _checks.whole("annealing_steps", annealing_steps, at_least=0)
        if annealing_every is not None:
            _checks.whole("annealing_every", annealing_every, at_least=1)
        kl = _kl(kl_weight, annealing_steps, annealing_every)
        super().__init__(num_data, DirichletEvidence(loss, activation), kl, **settings)


class EntropyMinimisation(Objective):
    r"""Log-likelihood of the labels minus the entropy of predictions for unlabelled inputs (Grandvalet, Bengio, 2005).

    $$\sum_i \log p(y_i \mid x_i, \theta) - \lambda\, \frac{N}{U} \sum_u H\bigl[p(\cdot \mid x_u, \theta)\bigr] .$$

    The term assumes that classes do not overlap and makes no assumption about their fractions. Its name is ``entropy``.
    Its inputs are the ``unlabelled`` inputs of `selbo.fit`, or the training inputs if none are given.

    Args:
        num_data: N, the number of training examples.
        weight: $\lambda$. At 1, the unlabelled inputs together weigh as much as the N labels.
        warmup: Passed to the `Term`.

    Example:
        >>> import torch
        >>> flat, labels = torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])
        >>> # 100 times log 2
        >>> EntropyMinimisation(num_data=100)(torch.nn.Flatten(), flat, labels).by_name
        {'entropy': tensor(-69.3147)}
    """

    for_bayesian = False

    def __init__(self, num_data: int, weight: float = 1.0, *, warmup: int | None = 0, **settings: Any) -> None:
        term = Term(negative_entropy, weight, warmup, name="entropy", per_example=True)
        super().__init__(num_data, terms=[term], **settings)


class ExpectationRegularisation(Objective):
    r"""Log-likelihood of the labels, regularised by known class fractions on unlabelled inputs (Mann, McCallum, 2007).

    $$\sum_i \log p(y_i \mid x_i, \theta) - \lambda N\, \mathrm{KL}\Bigl(\pi \,\|\,
    \frac1U \sum_u p_T(\cdot \mid x_u, \theta)\Bigr) .$$

    The term is `ClassFractions`; its name is ``class_fractions``. Its inputs are the ``unlabelled`` inputs of
    `selbo.fit`, or the training inputs if none are given.

    Args:
        fractions: $\pi$, fraction of each class in the target domain; positive, summing to one.
        num_data: N, the number of training examples.
        weight: $\lambda$; weight of the divergence relative to all N labels together.
        temperature: Temperature of the predictions. Values below 1 move them towards hard decisions.
        warmup: Passed to the `Term`.
    """

    def __init__(
        self,
        fractions: Sequence[float],
        num_data: int,
        weight: float = 1.0,
        *,
        temperature: float = 1.0,
        warmup: int | None = 0,
        kl_weight: float = 1.0,
        **settings: Any,
    ) -> None:
        term = Term(ClassFractions(fractions, temperature), weight, warmup, per_example=True)
        super().__init__(num_data, kl=_kl(kl_weight), terms=[term], **settings)


def _kl(weight: float, warmup: int = 0, every: int | None = None) -> KL:
    """Build a `KL`; errors name the arguments as the caller knows them."""
    weight = _checks.non_negative("kl_weight", weight)
    return KL(weight, _checks.whole("kl_warmup", warmup, at_least=0), every)


def _terms(summary: Summaries, weight: float, warmup: int | None) -> list[Term]:
    """Build the terms of one or several summaries; errors name the arguments as the caller knows them."""
    given = [summary] if isinstance(summary, Summary) else summary
    wrong = [summary] if not isinstance(given, Sequence) else [e for e in given if not isinstance(e, Summary)]
    if wrong:
        raise ValueError(
            f"`summary` must be a selbo.SummaryLikelihood, or several in a list, but got {type(wrong[0]).__name__}"
        )
    if not given:
        raise ValueError("`summary` must hold at least one selbo.SummaryLikelihood, but the list is empty")
    weight = _checks.non_negative("summary_weight", weight)
    if warmup is not None:
        _checks.whole("summary_warmup", warmup, at_least=0)
    return [Term(each, weight, warmup) for each in given]

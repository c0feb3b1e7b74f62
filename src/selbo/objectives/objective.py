"""What all objectives share: predictions of one set of weight draws, and terms scaled to the data set in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo._numerics import result_dtype
from selbo.objectives.label_priority import labels_first
from selbo.objectives.label_shift import LabelShift, shifted
from selbo.objectives.unlabelled import Assigned, Unlabelled, assign, join
from selbo.posteriors.handle import as_posterior
from selbo.posteriors.posterior import ESTIMATORS, Posterior

TERMS: Final = ("loss", "log_likelihood", "kl", "log_summary")
"""What every objective answers with."""


@dataclass(frozen=True)
class Terms:
    """The terms of an objective, each a sum over the data set in nats.

    Attributes:
        log_likelihood: Of the labels; mean over draws. Larger is better.
        kl: Divergence that holds the posterior (or the evidence) back, at least 0; zero if there is none.
        log_summary: Log-likelihood of the summary, mean over draws; the sum of several, zero if there is none.
        num_data: N, the number of training examples.
        kl_weight: Factor of ``kl`` in the total: what the user set, times its warm-up.
        summary_weight: Factor of ``log_summary``, likewise.
        log_summaries: The log-likelihood of each summary, by name.
    """

    log_likelihood: Tensor
    kl: Tensor
    log_summary: Tensor
    num_data: int
    kl_weight: float | Tensor = 1.0
    summary_weight: float | Tensor = 1.0
    log_summaries: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def elbo(self) -> Tensor:
        """The total, a lower bound of the evidence where weights are one; larger is better."""
        return self.log_likelihood - self.kl_weight * self.kl + self.summary_weight * self.log_summary

    @property
    def loss(self) -> Tensor:
        """What an optimiser minimises: the negative total for one training example."""
        return -self.elbo / self.num_data

    def named(self) -> dict[str, Tensor]:
        """Loss and terms by name, without their graph, for a log; of several summaries, each one's as well."""
        values = (self.loss, self.log_likelihood, self.kl, self.log_summary)
        terms = dict(zip(term_names(tuple(self.log_summaries)), (*values, *self.log_summaries.values()), strict=False))
        return {name: value.detach() for name, value in terms.items()}


def term_names(summaries: Sequence[str]) -> tuple[str, ...]:
    """Names of the terms of an objective with these summaries; of several, one each beside their sum."""
    return TERMS + (tuple(f"log_summary/{name}" for name in summaries) if len(summaries) > 1 else ())


class View(NamedTuple):
    """What a summary looks at.

    Attributes:
        log_probs: Predictions, shape (S, B, K).
        weights: How much each input counts, shape (B,); None if they count alike.
    """

    log_probs: Tensor
    weights: Tensor | None


class Objective(nn.Module):
    """A criterion for a classifier, Bayesian or plain.

    Subclasses say what the labels are worth and, if they have one, what the summary is worth; drawing weights, scaling
    a batch up to the data set, the divergence of the weights and warm-up are done here.

    Args:
        num_data: N, the number of training examples; a batch of B stands for N/B times as many.
        kl_weight: Factor of the KL divergence; below one the posterior is tempered, openly.
        kl_warmup: Number of steps over which the factor of the KL grows to ``kl_weight``; 0 for none.
        summary_weight: Factor of the summary term.
        summary_warmup: Number of steps over which that factor grows; 0 for none. If not given, the term waits for the
            labels: see `labels_first`.
        estimator: How a Bayesian network draws, see `forward_samples`.
        label_shift: Class fractions where labels come from and at the place of use, if these differ: summaries see the
            predictions for unlabelled inputs corrected by them.
    """

    for_bayesian: ClassVar[bool] = True
    for_plain: ClassVar[bool] = True
    kl_factor: Tensor
    label_ratios: Tensor | None

    def __init__(
        self,
        num_data: int,
        *,
        kl_weight: float = 1.0,
        kl_warmup: int = 0,
        summary_weight: float = 1.0,
        summary_warmup: int | None = None,
        estimator: str = "shared",
        label_shift: LabelShift | None = None,
    ) -> None:
        super().__init__()
        self.num_data = _checks.whole("num_data", num_data, at_least=1)
        self.register_buffer("kl_factor", torch.zeros(()), persistent=False)
        self.kl_weight = kl_weight
        self.kl_warmup = _checks.whole("kl_warmup", kl_warmup, at_least=0)
        self.summary_weight = _checks.non_negative("summary_weight", summary_weight)
        if summary_warmup is not None:
            _checks.whole("summary_warmup", summary_warmup, at_least=0)
        self.summary_warmup = summary_warmup
        self.estimator = _checks.one_of("estimator", estimator, ESTIMATORS)
        self.label_shift = label_shift
        ratios = None if label_shift is None else label_shift.log_ratios
        self.register_buffer("label_ratios", ratios, persistent=False)

    @property
    def kl_weight(self) -> float:
        """Factor of the KL divergence."""
        return self._kl_weight

    @kl_weight.setter
    def kl_weight(self, weight: float) -> None:
        self._kl_weight = _checks.non_negative("kl_weight", weight)
        self.kl_factor.fill_(weight)  # what compiled code reads, which so serves all weights

    @property
    def summary_names(self) -> tuple[str, ...]:
        """What the summaries are called; none here."""
        return ()

    @property
    def has_summary(self) -> bool:
        """Whether there is a summary term, which looks at a batch as a whole."""
        return bool(self.summary_names)

    @property
    def term_names(self) -> tuple[str, ...]:
        """Names of the terms, in the order of `Terms.named`."""
        return term_names(self.summary_names)

    def forward(
        self,
        model: nn.Module | Posterior,
        inputs: Tensor,
        labels: Tensor,
        num_samples: int = 1,
        *,
        unlabelled: Unlabelled | Assigned | None = None,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
        step: int | Tensor | None = None,
        steps: int | Tensor | None = None,
    ) -> Terms:
        """The terms, estimated from one batch.

        Args:
            model: A network made by `to_bayesian`, or a plain one that answers with logits; or its posterior, which a
                training loop makes once (`selbo.posteriors.as_posterior`).
            inputs: Shape (B, ...).
            labels: Classes, shape (B,), whole numbers from 0.
            num_samples: Number of weight draws; a plain network has one set of weights, and needs one pass.
            unlabelled: Inputs that the summary is about, shape (U, ...), in the place of the training ones; they go
                through the network in the same pass, with the same weights. No other term looks at them. Of several
                summaries all look at this tensor; or give one each, in a list or by name, None for the training inputs.
                A tensor that is given to several is passed through the network once.
            weights: How much each example counts, shape (B,), with a mean of one over the data set; alike if not given.
                They enter the likelihood and the histogram of the training inputs.
            generator: Where the noise of the weights comes from; torch's own if not given.
            step: Number of steps taken so far, from 0, for warm-up; without it the weights are what they grow to. Pass
                it in every training loop with a summary: a term at full weight from the start can swap classes.
            steps: Number of steps of the whole run, which a summary term needs beside ``step`` to wait for the labels.

        Returns:
            Named terms; ``terms.loss`` is what to minimise.
        """
        check_batch(inputs, labels)
        check_weights(weights, labels)
        posterior = as_posterior(model)
        self._check_model(posterior)
        assigned = assign(unlabelled if self.has_summary else None, self.summary_names)
        together = join(inputs, assigned.tensors)
        with posterior.once():
            logits = posterior.logits(together, num_samples, estimator=self.estimator, generator=generator)
            labelled, *others = logits.split([len(inputs), *map(len, assigned.tensors)], 1)
            kl = self._kl(posterior, labelled, labels, weights)
        log_summaries = self._log_summaries(self._views(labelled, weights, others, assigned.which))
        return Terms(
            log_likelihood=self._over_data(self._log_likelihood(labelled, labels), weights),
            kl=kl,
            log_summary=sum(log_summaries[1:], log_summaries[0]) if log_summaries else logits.new_zeros(()),
            num_data=self.num_data,
            kl_weight=(self.kl_factor if torch.compiler.is_compiling() else self.kl_weight) * self._kl_growth(step),
            summary_weight=self.summary_weight * self._summary_growth(step, steps),
            log_summaries=dict(zip(self.summary_names, log_summaries, strict=True)),
        )

    def _kl_growth(self, step: int | Tensor | None) -> float | Tensor:
        """How much of its weight the divergence has at a step."""
        return warm_up(step, self.kl_warmup)

    def _summary_growth(self, step: int | Tensor | None, steps: int | Tensor | None) -> float | Tensor:
        """How much of its weight the summary term has at a step."""
        if self.summary_warmup is not None:
            return warm_up(step, self.summary_warmup)
        if step is not None and steps is None and self.has_summary:
            raise ValueError(
                "`steps`, the number of steps of the whole run, must be given together with `step`, because the "
                "summary term waits for the labels; or set summary_warmup=0 to have it from the first step"
            )
        return labels_first(step, steps)

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities that the network's outputs stand for: (..., K) -> (..., K)."""
        return logits.log_softmax(-1)

    def _log_likelihood(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Worth of each label, its log-probability unless an objective knows better: (S, B, K), (B,) -> (S, B)."""
        return log_prob_of_labels(logits.log_softmax(-1), labels)

    def _views(
        self, labelled: Tensor, weights: Tensor | None, others: Sequence[Tensor], which: Sequence[int | None]
    ) -> list[View]:
        """What each summary looks at, computed once where several look at the same."""
        found: dict[int | None, View] = {}
        for each in which:
            if each not in found:
                found[each] = (
                    View(self.log_probs(labelled), weights)
                    if each is None
                    else View(self._at_use(self.log_probs(others[each])), None)
                )
        return [found[each] for each in which]

    def _at_use(self, log_probs: Tensor) -> Tensor:
        """Predictions for unlabelled inputs, corrected for the place of use if labels come from another one."""
        return log_probs if self.label_ratios is None else shifted(log_probs, self.label_ratios)

    def _log_summaries(self, views: Sequence[View]) -> list[Tensor]:
        """Worth of each summary, mean over draws, from what it looks at."""
        return []

    def _kl(self, posterior: Posterior, logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        """Divergence that is held against the fit: that of the weights, if they have a posterior."""
        kl = posterior.kl_divergence()
        return logits.new_zeros(()) if kl is None else kl.to(result_dtype(kl))

    def _over_data(self, values: Tensor, weights: Tensor | None) -> Tensor:
        """Sum over the data set, mean over draws, of what was found for a batch: (S, B), (B,) -> ().

        The one place where a batch of B is made to stand for N examples: N/B times its sum.
        """
        return self.num_data * (values if weights is None else values * weights.to(values)).mean()

    def _check_model(self, posterior: Posterior) -> None:
        name, bayesian = type(self).__name__, posterior.is_bayesian
        if bayesian and not self.for_bayesian:
            raise ValueError(f"`{name}` is for plain networks, but `model` is Bayesian: use selbo.ELBO or SummaryELBO")
        if not bayesian and not self.for_plain:
            raise ValueError(
                f"`{name}` is for Bayesian networks, but `model` is plain: convert it with selbo.to_bayesian, "
                "or use selbo.CrossEntropy"
            )

    def extra_repr(self) -> str:
        """Settings that differ from doing nothing, for ``print``."""
        shown = [f"num_data={self.num_data}"]
        shown += [f"kl_weight={self.kl_weight:g}"] if self.kl_weight != 1 else []
        shown += [f"kl_warmup={self.kl_warmup}"] if self.kl_warmup else []
        shown += [f"summary_weight={self.summary_weight:g}"] if self.summary_weight != 1 else []
        shown += [f"summary_warmup={self.summary_warmup}"] if self.summary_warmup is not None else []
        shown += [f"estimator={self.estimator!r}"] if self.estimator != "shared" else []
        shown += [f"label_shift={self.label_shift}"] if self.label_shift is not None else []
        return ", ".join(shown)


def warm_up(step: int | Tensor | None, steps: int) -> float | Tensor:
    """Factor of a term that grows in: 1/W at step 0, 1 from step W - 1 on; 1 without a step or without warm-up."""
    if step is None or steps == 0:
        return 1.0
    if isinstance(step, Tensor):
        return ((step + 1) / steps).clamp(max=1.0)
    return min(1.0, (step + 1) / steps)


def check_batch(inputs: Tensor, labels: Tensor) -> None:
    """Shapes and types of a batch; nothing here waits for the device."""
    if labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise ValueError(f"`labels` must hold classes as whole numbers, but got {labels.dtype}")
    if labels.ndim != 1 or inputs.ndim < 1 or inputs.shape[0] != labels.shape[0] or labels.shape[0] == 0:
        raise ValueError(
            f"`labels` must have shape (B,) for `inputs` of shape (B, ...) with B at least 1, but got "
            f"{tuple(labels.shape)} for {tuple(inputs.shape)}"
        )


def check_weights(weights: Tensor | None, labels: Tensor) -> None:
    """Shape and type of the weights of a batch, if there are any."""
    if weights is not None and _checks.floating("weights", weights).shape != labels.shape:
        raise ValueError(
            f"`weights` must have shape {tuple(labels.shape)}, one weight an example, but got {tuple(weights.shape)}"
        )


def log_prob_of_labels(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Log-probability of each label, log Cat(y | f), Eq. (6): (S, B, K), (B,) -> (S, B)."""
    if labels.device.type == "cpu" and not torch.compiler.is_compiling():  # elsewhere it would wait for the device
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= log_probs.shape[-1]:
            raise ValueError(
                f"`labels` must be classes from 0 to {log_probs.shape[-1] - 1}, as the model has {log_probs.shape[-1]} "
                f"outputs, but got {low if low < 0 else high}"
            )
    index = labels.long().expand(log_probs.shape[:-1]).unsqueeze(-1)
    return log_probs.gather(-1, index).squeeze(-1)

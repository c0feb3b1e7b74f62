"""Composed objectives: likelihood of the labels - weight * KL + sum of weight * term, each a sum over the data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, cast

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo._numerics import result_dtype
from selbo.objectives.label_priority import labels_first
from selbo.objectives.label_shift import LabelShift, shifted
from selbo.objectives.likelihoods import Categorical
from selbo.objectives.unlabelled import LABELLED, Assigned, Unlabelled, assign, check_group_index, join
from selbo.posteriors.handle import as_posterior
from selbo.posteriors.posterior import ESTIMATORS, Posterior
from selbo.summary.likelihood import Summary, SummaryLikelihood

LOG_SUMMARY: Final = "log_summary"

MISSING_LABEL: Final = -1
"""Label of an example whose class is not known."""

TERMS: Final = ("loss", "log_likelihood", "kl", LOG_SUMMARY)
"""Names that every objective reports."""

TAKEN: Final = (*TERMS, "elbo", "step", "learning_rate", "val_nll")
"""Names used in the records of a run; a term cannot have one of them."""


@dataclass(frozen=True)
class Terms:
    """The terms of an objective, each a sum over the data set in nats.

    Attributes:
        log_likelihood: Log-likelihood of the labels, mean over samples. Larger is better.
        kl: Divergence of the posterior from the prior (or of misleading evidence), at least 0; zero if there is none.
        num_data: N, the number of training examples, with and without label.
        kl_weight: Weight of ``kl`` at this step.
        by_name: Value of each further term, mean over samples. A single summary is called ``log_summary``, several are
            called ``log_summary/NAME``.
        weights: Weight of each further term at this step.
    """

    log_likelihood: Tensor
    kl: Tensor
    num_data: int
    kl_weight: float | Tensor = 1.0
    by_name: Mapping[str, Tensor] = field(default_factory=dict)
    weights: Mapping[str, float | Tensor] = field(default_factory=dict)

    @property
    def log_summary(self) -> Tensor:
        """Sum of the log-likelihoods of the summaries; zero if there are none."""
        found = [value for name, value in self.by_name.items() if name.startswith(LOG_SUMMARY)]
        return sum(found[1:], found[0]) if found else torch.zeros_like(self.log_likelihood)

    @property
    def elbo(self) -> Tensor:
        """The total; a lower bound of the log evidence if all weights are one. Larger is better."""
        weighted = sum(self.weights[name] * value for name, value in self.by_name.items())
        return self.log_likelihood - self.kl_weight * self.kl + weighted

    @property
    def loss(self) -> Tensor:
        """The loss to minimise: the negative total per training example."""
        return -self.elbo / self.num_data

    def named(self) -> dict[str, Tensor]:
        """Loss and terms by name, detached from the graph, for logging."""
        values = (self.loss, self.log_likelihood, self.kl, self.log_summary)
        named = {**dict(zip(TERMS, values, strict=True)), **self.by_name}
        return {name: value.detach() for name, value in named.items()}


class View(NamedTuple):
    """Predictions that a term is computed from.

    Attributes:
        log_probs: Log-probabilities, shape (S, B, K).
        weights: Weight per input, shape (B,); None for equal weights.
        groups: Group of each input, shape (B,), -1 for none; None if there are no groups.
    """

    log_probs: Tensor
    weights: Tensor | None
    groups: Tensor | None = None


class Weighted(nn.Module):
    """A part of an objective with a weight that may grow during training: see `KL` and `Term`."""

    factor: Tensor

    def __init__(self, weight: float, warmup: int | None) -> None:
        super().__init__()
        self.register_buffer("factor", torch.zeros(()), persistent=False)
        self.weight = weight
        self.warmup = None if warmup is None else _checks.whole("warmup", warmup, at_least=0)

    @property
    def weight(self) -> float:
        """Factor in the total after warm-up."""
        return self._weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._weight = _checks.non_negative("weight", weight)
        self.factor.fill_(weight)  # compiled code reads this tensor, so one graph serves all weights

    def weight_at(self, step: int | Tensor | None, steps: int | Tensor | None) -> float | Tensor:
        """The weight at a step of a run of ``steps`` steps."""
        return (self.factor if torch.compiler.is_compiling() else self.weight) * self.growth(step, steps)

    def growth(self, step: int | Tensor | None, steps: int | Tensor | None) -> float | Tensor:
        """Fraction of the weight at a step, from 0 to 1."""
        if self.warmup is not None:
            return warm_up(step, self.warmup)
        if step is not None and steps is None:
            raise ValueError(
                "`steps`, the number of steps of the whole run, must be given together with `step`, because the "
                "summary term waits for the labels; or set its warm-up to 0 to have it from the first step"
            )
        return labels_first(step, steps)

    def extra_repr(self) -> str:
        """Settings, for ``print``."""
        shown = {name: getattr(self, name, None) for name in ("name", "weight", "warmup", "every", "inputs")}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items() if value is not None)


class KL(Weighted):
    """KL divergence of the posterior over the weights from their prior; deterministic networks have none.

    Args:
        weight: Factor in the total; a value below one tempers the posterior.
        warmup: Number of steps over which the factor grows to ``weight``; 0 for none.
        every: Number of steps between two increases of the factor. If it is the number of steps per epoch, the factor
            is ``weight`` times the fraction of the warm-up epochs that are complete, starting at 0. If not given, the
            factor increases at every step.
    """

    def __init__(self, weight: float = 1.0, warmup: int = 0, every: int | None = None) -> None:
        super().__init__(weight, _checks.whole("warmup", warmup, at_least=0))
        self.every = None if every is None else _checks.whole("every", every, at_least=1)

    def forward(self, posterior: Posterior) -> Tensor | None:
        """The divergence, in float32 or wider; None if the posterior has none."""
        kl = posterior.kl_divergence()
        return None if kl is None else kl.to(result_dtype(kl))

    def growth(self, step: int | Tensor | None, steps: int | Tensor | None) -> float | Tensor:
        """Fraction of the weight at a step, from 0 to 1."""
        if self.every is None or step is None or not self.warmup:
            return super().growth(step, steps)
        done = step // self.every / (self.warmup / self.every)
        return done.clamp(max=1.0) if isinstance(done, Tensor) else min(1.0, done)


class Term(Weighted):
    """A further term of an objective: a `SummaryLikelihood`, a `GroupedSummary`, or any function of the predictions.

    Args:
        summary: Called with log-probabilities (S, B, K) and the weights of the inputs, (B,) or None. Returns one value
            per sample, (S,); larger is better. Values per input, (S, B), are averaged. A module may have state. If it
            has an attribute ``takes_groups`` that is true, the groups of the inputs, (B,), are passed before the
            weights.
        weight: Factor in the total. To weigh a summary in a Bayesian way, set its concentration instead.
        warmup: Number of steps over which the weight grows; 0 for none. If None, the term waits for the labels: see
            `labels_first`. A `GroupedSummary` does not wait, because different fractions of groups determine which
            class is which; other terms wait for it as for labels.
        inputs: ``"labelled"`` for the training inputs, or the name of the unlabelled set to use. If None, the term uses
            the unlabelled inputs passed under its name, or the only ones passed; without any, the training inputs.
        name: Name in logs; by default that of the summary, function or class.
        per_example: If True, the value is per example, as an entropy is, and is multiplied by ``num_data``. If False,
            it describes the whole data set, as a summary does, and counts once.

    Example:
        >>> def spread(log_probs, weights):
        ...     return -log_probs.exp().var(-2).sum(-1)
        >>> objective = Objective(100, terms=[Term(spread, weight=0.1)])
        >>> objective.term_names
        ('loss', 'log_likelihood', 'kl', 'log_summary', 'spread')
    """

    def __init__(
        self,
        summary: Callable[..., Tensor],
        weight: float = 1.0,
        warmup: int | None = None,
        inputs: str | None = None,
        *,
        name: str | None = None,
        per_example: bool = False,
    ) -> None:
        super().__init__(weight, warmup)
        if not callable(summary):
            raise ValueError(f"`summary` must be callable, as selbo.SummaryLikelihood is, but got {summary!r}")
        for argument, value in (("inputs", inputs), ("name", name)):
            if value is not None and (not isinstance(value, str) or not value):
                raise ValueError(f"`{argument}` must be a non-empty string, but got {value!r}")
        self.summary, self.inputs, self.per_example = summary, inputs, per_example
        self.is_summary = isinstance(summary, Summary)  # a part of ``log_summary``
        self.takes_groups = bool(getattr(summary, "takes_groups", False))
        self.waits = bool(getattr(summary, "waits_for_labels", True))
        self.name: str | None = name or getattr(summary, "name", None)
        if not self.is_summary:
            self.name = str(self.name or getattr(summary, "__name__", type(summary).__name__))
            if self.name in TAKEN or self.name.startswith(f"{LOG_SUMMARY}/"):
                raise ValueError(f"`name` must not be that of another number in the log, but got {self.name!r}")

    def forward(self, view: View) -> Tensor:
        """Value of the term for the predictions of a view, mean over samples."""
        # the objective computed these log-probabilities itself; they are NaN only if the network's outputs are
        options = {"validate": bool(self.summary.validate)} if isinstance(self.summary, Summary) else {}
        if self.takes_groups and view.groups is None:
            raise ValueError(
                f"the term {self.name or LOG_SUMMARY!r} needs the group of each input: pass `groups`, or "
                "selbo.objectives.Grouped(inputs, groups) as unlabelled inputs"
            )
        groups = (view.groups,) if self.takes_groups else ()
        value = self.summary(view.log_probs, *groups, view.weights, **options)
        samples, rows, _ = view.log_probs.shape
        if not isinstance(value, Tensor) or value.shape not in ((), (samples,), (samples, rows)):
            came = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"the term {self.name!r} must return one value per sample, shape ({samples},), but returned {came}"
            )
        return value.mean()

    def growth(self, step: int | Tensor | None, steps: int | Tensor | None) -> float | Tensor:
        """Fraction of the weight at a step, from 0 to 1."""
        return 1.0 if self.warmup is None and not self.waits else super().growth(step, steps)


class Objective(nn.Module):
    """A criterion for a Bayesian or deterministic classifier: log-likelihood - weight * KL + sum of weight * term.

    It samples weights, scales batches up to the data set, and applies weights and warm-up.

    Args:
        num_data: N, the number of training examples, with and without label; sums over the labelled ones among a batch
            of B are multiplied by N/B.
        likelihood: Likelihood of the labels; `Categorical` if not given.
        kl: Weight and warm-up of the KL divergence of a Bayesian network; full weight if not given.
        terms: Further terms, such as a summary of the predictions. They are treated as independent statements: each
            counts with its own weight, and information that two of them share counts twice.
        estimator: How a Bayesian network samples weights, see `forward_samples`. All but ``"shared"`` sample separate
            weights for each input and change the terms (docs/how-to/networks.md has numbers).
        accept_approximation: Allow such an estimator together with terms; otherwise it is an error.
        label_shift: Class fractions of the source and the target domain, if they differ. Terms are then computed from
            predictions for unlabelled inputs that are corrected for the shift.
    """

    for_bayesian: ClassVar[bool] = True
    for_deterministic: ClassVar[bool] = True
    terms: Sequence[Term]
    label_ratios: Tensor | None

    def __init__(
        self,
        num_data: int,
        likelihood: Categorical | None = None,
        kl: KL | None = None,
        terms: Sequence[Term] = (),
        *,
        estimator: str = "shared",
        accept_approximation: bool = False,
        label_shift: LabelShift | None = None,
    ) -> None:
        super().__init__()
        self.num_data = _checks.whole("num_data", num_data, at_least=1)
        self.likelihood = Categorical() if likelihood is None else likelihood
        self.kl = KL() if kl is None else kl
        parts = [("likelihood", self.likelihood, Categorical), ("kl", self.kl, KL)]
        for name, part, kind in [*parts, *(("terms", each, Term) for each in terms)]:
            if not isinstance(part, kind):
                raise ValueError(f"`{name}` must be selbo.objectives.{kind.__name__}, but got {type(part).__name__}")
        self.terms = cast(Sequence[Term], nn.ModuleList(terms))
        self.names = _checked_names(terms)
        self.estimator = _checks.one_of("estimator", estimator, ESTIMATORS)
        if terms and estimator != "shared" and not accept_approximation:
            raise ValueError(
                f"`estimator` must be 'shared' with a summary, which describes one sample of the whole network, but "
                f"got {estimator!r}: pass accept_approximation=True to use it anyway"
            )
        self.label_shift = label_shift
        ratios = None if label_shift is None else label_shift.log_ratios
        self.register_buffer("label_ratios", ratios, persistent=False)

    @property
    def summaries(self) -> tuple[SummaryLikelihood, ...]:
        """The summaries of all predictions among the terms, in their order, without those of groups."""
        return tuple(each.summary for each in self.terms if isinstance(each.summary, SummaryLikelihood))

    @property
    def has_summary(self) -> bool:
        """Whether there are further terms, which are computed from a batch as a whole."""
        return bool(self.terms)

    @property
    def term_names(self) -> tuple[str, ...]:
        """Names of the terms, in the order of `Terms.named`."""
        return tuple(dict.fromkeys((*TERMS, *self._labels())))

    def _labels(self) -> list[str]:
        """Name of each further term in a log."""
        prefix = f"{LOG_SUMMARY}/" if sum(term.is_summary for term in self.terms) > 1 else ""
        named = zip(self.terms, self.names, strict=True)
        return [(prefix + name if prefix else LOG_SUMMARY) if term.is_summary else name for term, name in named]

    def assign(self, unlabelled: Unlabelled | Assigned | None) -> Assigned:
        """Assign the inputs that a user passed to the terms."""
        named = zip(self.terms, self.names, strict=True)
        sets = [None if term.inputs == LABELLED else term.inputs or name for term, name in named]
        assigned = assign(unlabelled if self.terms else None, sets)
        for term, which in zip(self.terms, assigned.which, strict=True):
            if which is None and term.inputs not in (None, LABELLED):
                raise ValueError(f"`unlabelled` must hold {term.inputs!r}, which a term uses, but does not")
        return assigned

    def forward(
        self,
        model: nn.Module | Posterior,
        inputs: Tensor,
        labels: Tensor | None,
        num_samples: int = 1,
        *,
        unlabelled: Unlabelled | Assigned | None = None,
        weights: Tensor | None = None,
        groups: Tensor | None = None,
        generator: torch.Generator | None = None,
        step: int | Tensor | None = None,
        steps: int | Tensor | None = None,
    ) -> Terms:
        """Estimate the terms from one batch.

        Args:
            model: A network made by `to_bayesian`, or a deterministic one that returns logits; or its posterior, which
                a training loop creates once (`selbo.posteriors.as_posterior`).
            inputs: Shape (B, ...).
            labels: Classes, shape (B,), whole numbers from 0. With further terms, -1 where the class is not known: the
                likelihood counts the labelled examples only. None if there are no labels at all: then there is no
                likelihood, and terms that would wait for labels start at once, unless there are groups to wait for.
            num_samples: Number of weight samples. A deterministic network has one set of weights and needs one pass.
            unlabelled: Inputs of the further terms, shape (U, ...), instead of the training inputs. They go through the
                network in the same pass, with the same weights. Pass one tensor for all terms, or one per term, in a
                list or by name, with None for the training inputs. A tensor shared by several terms goes through the
                network once. Pass a `Grouped` for inputs with groups.
            weights: Weight per example, shape (B,), with a mean of one over the data set; equal weights if not given.
                They apply to the likelihood and to terms on the training inputs.
            groups: Group of each example, shape (B,), -1 for none, for terms with beliefs about groups.
            generator: Source of the noise of the weights; torch's default generator if not given.
            step: Number of steps taken so far, from 0, for warm-up; if not given, all weights are at their full value.
                Pass it in every training loop with a summary: a term at full weight from the start can swap classes.
            steps: Number of steps of the whole run; with ``step``, lets a term wait for the labels.

        Returns:
            Named terms; minimise ``terms.loss``.
        """
        if labels is None:
            check_inputs(inputs)
        else:
            check_batch(inputs, labels)
        check_weights(weights, inputs)
        check_group_index(groups, inputs)
        assigned = self.assign(unlabelled)
        posterior = as_posterior(model)
        unseen = assigned.inputs()
        logits, kl = self._sample(posterior, join(inputs, unseen), num_samples, generator)
        labelled, *others = logits.split([len(inputs), *map(len, unseen)], 1)
        log_likelihood, divergence = self._label_terms(labelled, labels, weights)
        if divergence is not None:
            kl = kl + divergence
        views = self._views(posterior, View(labelled, weights, groups), others, assigned)
        values = [
            self.num_data * term(view) if term.per_example else term(view)
            for term, view in zip(self.terms, views, strict=True)
        ]
        names = self._labels()
        if labels is None and not any(term.takes_groups for term in self.terms):
            steps = 0  # nothing to wait for
        return Terms(
            log_likelihood=log_likelihood,
            kl=kl,
            num_data=self.num_data,
            kl_weight=self.kl.weight_at(step, steps),
            by_name=dict(zip(names, values, strict=True)),
            weights={name: term.weight_at(step, steps) for name, term in zip(names, self.terms, strict=True)},
        )

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities of the classes for the outputs of a network: (..., K) -> (..., K)."""
        return self.likelihood.log_probs(logits)

    def _sample(
        self, posterior: Posterior, inputs: Tensor, num_samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Logits (S, B, K) of weight samples and the KL divergence of the posterior; all Bayesian code is here."""
        self._check_model(posterior)
        with posterior.once():
            logits = posterior.logits(inputs, num_samples, estimator=self.estimator, generator=generator)
            kl = self.kl(posterior)
        return logits, logits.new_zeros(()) if kl is None else kl

    def _views(
        self,
        posterior: Posterior,
        training: View,
        others: Sequence[Tensor],
        assigned: Assigned,
    ) -> list[View]:
        """The view of each term, computed once for terms that share inputs; logits of the training and other inputs."""
        found: dict[int | None, View] = {}
        of_others = assigned.groups()
        for each in assigned.which:
            if each not in found:
                logits, weights, groups = training if each is None else View(others[each], None, of_others[each])
                log_probs = posterior.summarised(self.log_probs(logits))
                if each is not None and self.label_ratios is not None:
                    log_probs = shifted(log_probs, self.label_ratios)  # labels come from another domain
                found[each] = View(log_probs, weights, groups)
        return [found[each] for each in assigned.which]

    def _label_terms(
        self, logits: Tensor, labels: Tensor | None, weights: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Log-likelihood and divergence of the labelled examples of a batch, as sums over the data set."""
        if labels is None:
            if not self.terms:
                raise ValueError(f"`labels` must be given, because {type(self).__name__} has no further term here")
            return logits.new_zeros(()), None
        known = None
        if self.terms:  # from which a network can learn without labels
            if labels.device.type == "cpu" and not torch.compiler.is_compiling() and int(labels.min()) < MISSING_LABEL:
                raise ValueError(f"`labels` must be classes from 0, or -1 for none, but got {int(labels.min())}")
            known, labels = labels != MISSING_LABEL, labels.clamp(min=0)
        log_likelihood, divergence = (
            None if each is None else self._over_data(each if known is None else torch.where(known, each, 0.0), weights)
            for each in (self.likelihood(logits, labels), self.likelihood.divergence(logits, labels))
        )
        assert log_likelihood is not None
        return log_likelihood, divergence

    def _over_data(self, values: Tensor, weights: Tensor | None) -> Tensor:
        """Sum over the data set, mean over samples, of the values of a batch: (S, B), (B,) -> ().

        The sum over a batch of B examples is multiplied by N/B.
        """
        return self.num_data * (values if weights is None else values * weights.to(values)).mean()

    def _check_model(self, posterior: Posterior) -> None:
        name, bayesian = type(self).__name__, posterior.is_bayesian
        if posterior.is_sample:
            return
        if bayesian and not self.for_bayesian:
            raise ValueError(
                f"`{name}` is for deterministic networks, but `model` is Bayesian: use selbo.ELBO or SummaryELBO"
            )
        if not bayesian and not self.for_deterministic:
            raise ValueError(
                f"`{name}` is for Bayesian networks, but `model` is deterministic: convert it with selbo.to_bayesian, "
                "or use selbo.CrossEntropy"
            )

    def extra_repr(self) -> str:
        """Settings, for ``print``; those of the likelihood, the KL and the terms follow."""
        shown = [f"num_data={self.num_data}"]
        shown += [f"estimator={self.estimator!r}"] if self.estimator != "shared" else []
        shown += [f"label_shift={self.label_shift}"] if self.label_shift is not None else []
        return ", ".join(shown)


def _checked_names(terms: Sequence[Term]) -> tuple[str, ...]:
    """Validate the terms and return their names; a summary without a name is called by its number, from 0."""
    names = [str(index) if each.name is None else each.name for index, each in enumerate(terms)]
    modules = [id(each.summary) for each in terms if isinstance(each.summary, nn.Module)]
    if len(set(modules)) < len(modules):
        raise ValueError("each summary must be used once, but one of them is used twice")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"terms must have different names, but two are called {twice[0]!r}")
    classes = {each.summary.partition.num_classes for each in terms if isinstance(each.summary, Summary)}
    if len(classes) > 1:
        raise ValueError(f"summaries must have the same number of classes, but got {sorted(classes)}")
    return tuple(names)


def warm_up(step: int | Tensor | None, steps: int) -> float | Tensor:
    """Factor of a term during warm-up over W steps: 1/W at step 0, 1 from step W - 1 on; 1 without step or warm-up."""
    if step is None or steps == 0:
        return 1.0
    if isinstance(step, Tensor):
        return ((step + 1) / steps).clamp(max=1.0)
    return min(1.0, (step + 1) / steps)


def check_batch(inputs: Tensor, labels: Tensor) -> None:
    """Validate shapes and types of a batch; does not synchronise with the device."""
    if labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise ValueError(f"`labels` must hold classes as whole numbers, but got {labels.dtype}")
    if labels.ndim != 1 or inputs.ndim < 1 or inputs.shape[0] != labels.shape[0] or labels.shape[0] == 0:
        raise ValueError(
            f"`labels` must have shape (B,) for `inputs` of shape (B, ...) with B at least 1, but got "
            f"{tuple(labels.shape)} for {tuple(inputs.shape)}"
        )


def check_inputs(inputs: Tensor) -> None:
    """Validate a batch without labels."""
    if not isinstance(inputs, Tensor) or inputs.ndim < 1 or len(inputs) == 0:
        came = f"shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else type(inputs).__name__
        raise ValueError(f"`inputs` must be a tensor of shape (B, ...) with B at least 1, but got {came}")


def check_weights(weights: Tensor | None, inputs: Tensor) -> None:
    """Validate shape and type of the weights of a batch, if there are any."""
    if weights is not None and _checks.floating("weights", weights).shape != inputs.shape[:1]:
        raise ValueError(
            f"`weights` must have shape {tuple(inputs.shape[:1])}, one weight per example, but got "
            f"{tuple(weights.shape)}"
        )

"""Evaluates a trained network or an ensemble: predictions and metrics."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from selbo import ConfidenceBins, Partition, Prediction, ScoreBins, calibrate, evaluate_ood, predict
from selbo.evaluation import at_temperature, mixture
from selbo.objectives import Objective, log_prob_of_labels
from selbo.posteriors import Posterior
from selbo.random import generator_for
from selbo.report import outcomes
from selbo.results import Metrics, ReliabilityBins
from selbo.training import Diverged
from selbo_lab.data.dataset import LabelledData
from selbo_lab.published import auroc_of_both_columns
from selbo_lab.run import baselines, build, frozen
from selbo_lab.run.domains import LARGEST_SAMPLE, LEAST_PREVALENCE, rows_with, uniform_prevalences
from selbo_lab.run.records import CLEAN, SHIFTS, USE, OODMeasurement, RunHistogram, RunMeasurement, ScoreMap
from selbo_lab.run.scores import build_map, score_histogram
from selbo_lab.run.tasks import Condition, RunTask
from selbo_lab.studies.run_spec import FROZEN_CORRECTIONS, RunSpec

IMAGES_AT_A_TIME: Final = 4096
VECTORS_AT_A_TIME: Final = 1 << 15
"""Inputs per forward pass of a prediction: the weights are sampled once for all of them."""

COMPILED_AT_A_TIME: Final = 5000
"""The same for compiled networks, which need a fixed size: it divides CIFAR-10's validation and test sets."""

COMPILED_MODELS: Final = tuple(build.LARGE_NETWORKS)
"""Networks that are worth compiling."""


VAL: Final = "val"
POOL: Final = "unlabelled"
"""Names of the validation data and of unlabelled inputs among sets that were predicted."""

SHOWN_BY_SHIFT: Final = ("nll", "accuracy", "ece")


class Member(NamedTuple):
    """A trained network, or its posterior, and the training objective."""

    network: nn.Module | Posterior
    objective: Objective


class SeenSet(NamedTuple):
    """Predictions for a whole set, its labels, and the level of its corruption if there is one."""

    prediction: Prediction
    labels: Tensor
    level: float | None = None

    def rows(self, rows: Tensor) -> "SeenSet":
        """Some of its cases."""
        kept = Prediction(*(each[rows] for each in vars(self.prediction).values()))
        return SeenSet(kept, self.labels[rows], self.level)


@dataclass(frozen=True)
class Findings:
    """Results of an evaluation: the fields of `selbo_lab.run.records.Run` that come from the trained networks."""

    val: RunMeasurement
    temperature: float | None
    conditions: dict[str, RunMeasurement] = field(default_factory=dict)
    ood: dict[str, OODMeasurement] = field(default_factory=dict)
    histogram: RunHistogram | None = None
    reliability: ReliabilityBins | None = None
    score_histogram: tuple[int, ...] | None = None
    map: ScoreMap | None = None


class Evaluation:
    """Evaluation of a trained network or an ensemble.

    Args:
        spec: Settings of the run.
        task: The data.
        members: The networks.
        device: Device of the networks.
        earlier: Predictions of an earlier model, if they were the belief.
        seen: Predictions of these networks by name of the set, used instead of predicting again, and filled if empty;
            for test sets in halves.
    """

    def __init__(
        self,
        spec: RunSpec,
        task: RunTask,
        members: list[Member],
        device: str,
        earlier: Tensor | None = None,
        *,
        seen: dict[str, SeenSet] | None = None,
    ) -> None:
        self.spec, self.task, self.members, self.device, self.earlier = spec, task, members, device, earlier
        self.seen: dict[str, SeenSet] = {} if seen is None else seen
        self.temperature: float | None = None
        self.correction: baselines.Correction | None = None
        self.frozen: frozen.CorrectedLogProbs | None = None

    def predict(self, data: LabelledData, draws: int) -> Prediction:
        """Predictions for a data set, on the CPU."""
        return self.predict_inputs(data.to(self.device).network_inputs(), draws)

    def predict_inputs(self, inputs: Tensor, draws: int) -> Prediction:
        """Predictions for inputs on the device of the networks, in the precision of training; returned on the CPU."""
        at_a_time = VECTORS_AT_A_TIME if inputs.ndim == 2 else IMAGES_AT_A_TIME
        network = self.spec.recipe.objective not in (*baselines.SCIKIT_LEARN, baselines.ZERO_SHOT)
        compiled = network and self.spec.model.name in COMPILED_MODELS and torch.device(self.device).type == "cuda"
        if compiled:
            at_a_time = min(COMPILED_AT_A_TIME, len(self.task.test))
        predictions = []
        for i, member in enumerate(self.members):
            noise = generator_for(self.spec.seed, "prediction", i, device=self.device)
            found = predict(
                member.network,
                inputs,
                draws,
                objective=member.objective,
                generator=noise,
                batch_size=at_a_time,
                precision=self.spec.recipe.precision,
                engine="compiled" if compiled else "eager",
            )
            if bool(found.log_probs.isnan().any()):
                raise Diverged("the predictions are not numbers")
            predictions.append(Prediction(*(each.cpu() for each in vars(found).values())))
        return predictions[0] if len(predictions) == 1 else mixture(predictions)

    def everything(self) -> Findings:
        """Run all evaluations in the settings."""
        evaluation = self.spec.evaluation
        if evaluation.halves and evaluation.test:
            return self._by_halves()
        on_val = self._seen(VAL, self.task.val).prediction
        self.temperature = fit_temperature(on_val, self.task.val.labels)
        val = self._condition(on_val, self.task.val.labels, level=None)
        if self.spec.data.prevalences:
            return self._over_prevalences(on_val)
        if self.task.use is not None:
            self.correction = self._correction(on_val, self._on_unlabelled)
            val = replace(val, nll_at_use=self._nll_at_use(self._for_use(on_val).prediction))
        if not evaluation.test:  # chooses settings; there are many such runs, and nothing reads these details
            return Findings(replace(val, scaled=None, recall=None), self.temperature)
        clean = self.predict(self.task.test, evaluation.draws)
        labels = self.task.test.labels
        conditions = {CLEAN: self._condition(clean, labels, level=0.0)}
        shown = clean
        if self.task.use is not None:
            shown, conditions[USE] = self._at_use(self.task.use)
            labels = self.task.use.labels
        draws = evaluation.corrupted_draws or evaluation.draws
        for condition, seen in self._corrupted(draws):
            conditions[condition.name] = self._condition(seen, condition.data.labels, level=condition.level)
        return Findings(
            val,
            self.temperature,
            conditions=conditions,
            ood={name: self._foreign(clean, data) for name, data in self.task.foreign.items()},
            histogram=self._histogram(shown),
            reliability=outcomes.compute_reliability(shown, labels),
            score_histogram=score_histogram(shown),
            map=build_map(self.task.test, clean) if evaluation.scores else None,
        )

    def _corrupted(self, draws: int) -> Iterator[tuple[Condition, Prediction]]:
        """Predictions for the corrupted sets; small sets of vectors are predicted in one pass."""
        if self.task.test.inputs.ndim > 2:
            for condition in self.task.corrupted():
                yield condition, self.predict(condition.data, draws)
            return
        together = list(self.task.corrupted())
        if together:
            inputs = torch.cat([each.data.to(self.device).network_inputs() for each in together])
            found = self.predict_inputs(inputs, draws)
            sizes = [len(each.data) for each in together]
            parts = zip(*(values.split(sizes) for values in vars(found).values()), strict=True)
            yield from zip(together, (Prediction(*part) for part in parts), strict=True)

    def _condition(self, prediction: Prediction, labels: Tensor, *, level: float | None) -> RunMeasurement:
        """Metrics as predicted and, as ``scaled``, with the temperature of the validation data."""
        found = self._measured(prediction, labels, level=level)
        if self.temperature is None:
            return found
        return replace(found, scaled=self._measured(at_temperature(prediction, self.temperature), labels).metrics)

    def _measured(self, prediction: Prediction, labels: Tensor, *, level: float | None = None) -> RunMeasurement:
        found = outcomes.condition(prediction, labels, level=level)
        metrics = found.metrics
        if self.spec.evaluation.both_columns:
            metrics = {**metrics, "auroc": auroc_of_both_columns(prediction.log_probs, labels)}
        return RunMeasurement(level=level, metrics=metrics, recall=found.recall)

    def _by_halves(self) -> Findings:
        """Metrics on one half of every test set, after a correction that is fitted to the other half."""
        if not self.seen:
            self.seen.update(self._every_set())
        on_val = self.seen[VAL]
        self.temperature = fit_temperature(on_val.prediction, on_val.labels)
        fitted, scored = halves(len(self.task.test), seed=self.spec.seed)
        conditions, shown = {}, {}
        for name, whole in self.seen.items():
            if name != VAL:
                pool, rest = whole.rows(fitted), whole.rows(scored)
                self.correction = self._correction(on_val.prediction, partial(SeenSet, *pool))
                shown[name] = rest._replace(prediction=self._for_use(rest.prediction).prediction)
                conditions[name] = replace(
                    self._measured(shown[name].prediction, rest.labels, level=rest.level), recall=None
                )
        return Findings(
            self._measured(on_val.prediction, on_val.labels),
            self.temperature,
            conditions=conditions,
            histogram=self._histogram(shown[CLEAN].prediction),
            reliability=outcomes.compute_reliability(shown[CLEAN].prediction, shown[CLEAN].labels),
            score_histogram=score_histogram(shown[CLEAN].prediction),
        )

    def _over_prevalences(self, on_val: Prediction) -> Findings:
        """Mean metrics over target domains with class fractions from the whole simplex, and by size of the shift."""
        data, task, seed = self.spec.data, self.task, self.spec.seed
        assert task.use is not None
        pool, use = self._seen(POOL, require_unlabelled(task)), self._seen(USE, task.use)
        counts = task.train.class_counts
        shifts, found, shown = list[float](), list[RunMeasurement](), list[SeenSet]()
        noise = generator_for(seed, "samples")
        for fractions in uniform_prevalences(len(counts), data.prevalences, seed=seed):
            there, tested = (
                each.rows(rows_with(each.labels, fractions, min(LARGEST_SAMPLE, len(each.labels)), generator=noise))
                for each in (pool, use)
            )
            self.correction = self._correction(on_val, partial(SeenSet, *there), fractions)
            shown.append(tested._replace(prediction=self._for_use(tested.prediction).prediction))
            found.append(self._measured(shown[-1].prediction, tested.labels))
            shifts.append(sum(abs(p - n / len(task.train)) for p, n in zip(fractions, counts, strict=True)))
        order = sorted(range(len(found)), key=shifts.__getitem__)
        clean = self._seen(CLEAN, task.test)
        conditions = {
            CLEAN: self._measured(clean.prediction, clean.labels, level=0.0),
            USE: RunMeasurement(level=None, metrics=_mean_metrics([each.metrics for each in found])),
        }
        for i, name in enumerate(SHIFTS):
            third = order[i * len(order) // len(SHIFTS) : (i + 1) * len(order) // len(SHIFTS)]
            metrics = _mean_metrics([found[k].metrics for k in third])
            conditions[name] = RunMeasurement(level=None, metrics={each: metrics[each] for each in SHOWN_BY_SHIFT})
        together = Prediction(
            *(torch.cat(each) for each in zip(*(vars(s.prediction).values() for s in shown), strict=True))
        )
        return Findings(
            self._measured(on_val, task.val.labels),
            self.temperature,
            conditions=conditions,
            reliability=outcomes.compute_reliability(together, torch.cat([each.labels for each in shown])),
        )

    def _seen(self, name: str, data: LabelledData) -> SeenSet:
        """Predictions for a set, made once."""
        if name not in self.seen:
            self.seen[name] = SeenSet(self.predict(data, self.spec.evaluation.draws), data.labels)
        return self.seen[name]

    def _every_set(self) -> dict[str, SeenSet]:
        """Predictions for the validation data and all test sets, the clean one first."""
        draws, task = self.spec.evaluation.draws, self.task
        found = {
            VAL: SeenSet(self.predict(task.val, draws), task.val.labels),
            CLEAN: SeenSet(self.predict(task.test, draws), task.test.labels, 0.0),
        }
        for condition, seen in self._corrupted(self.spec.evaluation.corrupted_draws or draws):
            found[condition.name] = SeenSet(seen, condition.data.labels, condition.level)
        return found

    def _on_unlabelled(self) -> SeenSet:
        pool = require_unlabelled(self.task)
        return SeenSet(self.predict(pool, self.spec.evaluation.draws), pool.labels)

    def _correction(
        self, on_val: Prediction, pool: Callable[[], SeenSet], fractions: tuple[float, ...] = ()
    ) -> baselines.Correction | None:
        """The correction of predictions for the target domain, if any.

        Args:
            on_val: Predictions for the validation data.
            pool: Predicts for the unlabelled inputs of the target domain.
            fractions: Its class fractions; those of the data if not given.
        """
        self.frozen = None
        how = self.spec.recipe.correction or ("known" if self.spec.recipe.label_shift else "")
        if not how:
            return None
        told = fractions or build.collect_told(self.spec.data, self.task.train.num_classes).fractions
        fractions = _stated_off(told, self.spec.recipe.fractions_off)
        if how in FROZEN_CORRECTIONS:
            there = pool()
            self.frozen = frozen.frozen_correction(
                self.spec.recipe,
                fractions=fractions,
                train=self.task.train,
                val=on_val,
                val_labels=self.task.val.labels,
                pool=there.prediction,
                pool_labels=there.labels,
                seed=self.spec.seed,
            )
            return None
        return baselines.Correction(
            how,
            train=self.task.train,
            known=fractions,
            unlabelled=lambda: pool().prediction,
            val=on_val,
            val_labels=self.task.val.labels,
        )

    def _for_use(self, prediction: Prediction, temperature: float | None = None) -> baselines.Corrected:
        """Predictions corrected for the target domain, at a temperature if one is given."""

        def scaled(each: Prediction) -> Prediction:
            return each if temperature is None else at_temperature(each, temperature)

        if self.frozen is not None:  # it has a temperature of its own
            return baselines.Corrected(prediction.with_log_probs(self.frozen(prediction.log_probs)), ())
        if self.correction is None:
            return baselines.Corrected(scaled(prediction), ())
        return self.correction(prediction, scaled)

    def _at_use(self, use: LabelledData) -> tuple[Prediction, RunMeasurement]:
        """Predictions in the target domain, corrected if the recipe says so, and their metrics."""
        seen = self.predict(use, self.spec.evaluation.draws)
        plain = self._for_use(seen)
        found = self._measured(plain.prediction, use.labels)
        if plain.fractions:
            found = replace(found, fractions=tuple(plain.fractions))
        if self.spec.evaluation.items:
            nll = -log_prob_of_labels(plain.prediction.log_probs.double()[None], use.labels)[0]
            found = replace(found, items=tuple(round(each, 4) for each in nll.tolist()))
        if self.temperature is not None:
            scaled = self._for_use(seen, self.temperature)
            found = replace(found, scaled=self._measured(scaled.prediction, use.labels).metrics)
        return plain.prediction, found

    def _nll_at_use(self, on_val: Prediction) -> float | None:
        """Validation NLL weighted to the class fractions of the target domain; None if it is not finite."""
        val, fractions = self.task.val, build.collect_told(self.spec.data, self.task.val.num_classes).fractions
        nll = -log_prob_of_labels(on_val.log_probs.double()[None], val.labels)[0]
        by_class = [nll[val.labels == k].mean().item() for k in range(len(fractions)) if val.class_counts[k]]
        there = [share for share, count in zip(fractions, val.class_counts, strict=True) if count]
        found = math.fsum(share * each for share, each in zip(there, by_class, strict=True)) / math.fsum(there)
        return found if math.isfinite(found) else None

    def _foreign(self, clean: Prediction, data: LabelledData) -> OODMeasurement:
        draws = self.spec.evaluation.draws  # as for the clean test set: the entropy of a mean grows with it
        foreign = self.predict(data, draws)
        scaled = None
        if self.temperature is not None:
            scaled = _apart(at_temperature(clean, self.temperature), at_temperature(foreign, self.temperature))
        return OODMeasurement(
            name=data.name,
            num_samples={"in": draws, "out": draws},
            entropy=outcomes.entropies(clean, foreign),
            metrics=_apart(clean, foreign),
            scaled=scaled,
        )

    def _histogram(self, clean: Prediction) -> RunHistogram:
        """Share of the test predictions per region, with the belief if there is one."""
        recipe, count = self.spec.recipe, clean.probs.shape[-1]
        if not recipe.believes:
            partition: Partition = (
                ScoreBins(build.EQUAL_EDGES) if count == 2 else ConfidenceBins(build.STUDY_CONFIDENCE_EDGES, count)
            )
            return RunHistogram(belief=None, masses=outcomes.region_masses(clean, partition))
        summary = build.build_summary(
            recipe,
            num_data=len(self.task.train),
            num_classes=count,
            data=self.spec.data,
            counts=self.task.train.class_counts,
            earlier=self.earlier,
        )
        belief = outcomes.describe_belief(summary, f"{recipe.belief} over {recipe.partition}")
        belief = replace(  # the settings of the run describe its regions
            belief, partition=belief.partition.removeprefix("Closed"), scale=None, shells=None
        )
        return RunHistogram(belief=belief, masses=outcomes.region_masses(clean, summary.partition))


def _stated_off(fractions: tuple[float, ...], by: float) -> tuple[float, ...]:
    """Class fractions with an error in that of class 0, which stays away from 0 and 1."""
    first = min(max(fractions[0] + by, LEAST_PREVALENCE), 1 - LEAST_PREVALENCE)
    return build.with_first_off(fractions, first - fractions[0]) if by else fractions


def _mean_metrics(measured: list[Metrics]) -> Metrics:
    """Mean of each metric; None if one is missing."""
    columns = {name: [each[name] for each in measured] for name in measured[0]}
    known = {name: [each for each in values if each is not None] for name, values in columns.items()}
    return {name: math.fsum(v) / len(v) if len(v) == len(measured) else None for name, v in known.items()}


def halves(count: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of the two halves of a set, in their order; the first has one more if the number is odd."""
    order = torch.randperm(count, generator=generator_for(seed, "halves"))
    first, second = order.tensor_split(2)
    return first.sort().values, second.sort().values


def fit_temperature(prediction: Prediction, labels: Tensor) -> float | None:
    """The fitted temperature; None if no temperature can be fitted."""
    try:
        return calibrate.temperature(prediction.log_probs, labels)
    except ValueError:  # a label with probability zero
        return None


def _apart(inside: Prediction, outside: Prediction) -> Metrics:
    """OOD detection metrics of the entropies of in-distribution and OOD inputs."""
    means = {"entropy_in": inside.entropy.mean().item(), "entropy_out": outside.entropy.mean().item()}
    return {**means, **evaluate_ood(inside.entropy, outside.entropy)}


def require_unlabelled(task: RunTask) -> LabelledData:
    """Unlabelled inputs of the target domain; raises an error if there are none."""
    if task.unlabelled is None:
        raise ValueError("`data` must have a target domain for a method that uses its inputs, but has none")
    return task.unlabelled

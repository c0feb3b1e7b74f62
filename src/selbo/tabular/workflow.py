"""Training on a table: rows become a task, a network is trained and tested, and a folder comes out."""

import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from selbo.evaluation import calibrate, check_belief
from selbo.evaluation.check_belief import shortfall
from selbo.evaluation.predict import Prediction, at_temperature
from selbo.objectives import LabelShift
from selbo.presets import INIT_STD, objective_for
from selbo.report import outcomes
from selbo.results import ClassificationTask, Comparison, Measurement, Outcome
from selbo.summary.likelihood import SummaryLikelihood
from selbo.tabular import saved_model
from selbo.tabular.preprocessing import Preprocessing, find_classes, fit_preprocessing, label_names
from selbo.tabular.settings import Settings, above_labels, below_guessing, build_summaries, fractions_of
from selbo.tabular.splits import split
from selbo.tabular.table import read_table
from selbo.training import fit

CHECKPOINT_SECONDS: Final = 5.0
"""Between checkpoints: no more than that is lost when a run is killed."""

CLEAN: Final = "test"
SHOWN: Final = ("nll", "accuracy", "ece", "brier", "auroc", "f1_macro")
"""Metrics in the report; all of them are in the metrics file."""


@dataclass(frozen=True)
class Task:
    """A table, ready to train on.

    Attributes:
        name: Of the file.
        preprocessing: How its rows become inputs.
        train: Inputs and labels.
        val: The same, for validation.
        test: The same, for testing.
        summaries: What is believed, if anything: of confidence first.
        words: The same in words.
        notes: What a user should be told.
        unlabelled: Inputs that the belief is about, if not the training ones.
        place: Name of their file.
        label_shift: Class fractions of the training rows and those stated about the unlabelled ones, if they are.
    """

    name: str
    preprocessing: Preprocessing
    train: tuple[Tensor, Tensor]
    val: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    summaries: list[SummaryLikelihood]
    words: str | None
    notes: tuple[str, ...]
    unlabelled: Tensor | None = None
    place: str | None = None
    label_shift: LabelShift | None = None

    @property
    def summary(self) -> SummaryLikelihood | None:
        """What is believed, or the first part of it; None if nothing is."""
        return self.summaries[0] if self.summaries else None

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.preprocessing.classes)


def identity_of(data: Path, settings: Settings, unlabelled: Path | None = None) -> dict[str, Any]:
    """Settings and checksums of the data: what a folder is compared with, to go on with it or to refuse."""
    if unlabelled is not None:
        settings.check_unlabelled()
    files = {"data_sha256": data} if unlabelled is None else {"data_sha256": data, "unlabelled_sha256": unlabelled}
    for file in files.values():
        if not file.is_file():
            read_table(file)  # says what is wrong
    return {**settings.to_json(), **{name: saved_model.digest(file) for name, file in files.items()}}


def prepare(data: Path, settings: Settings, unlabelled: Path | None = None) -> Task:
    """Read a table and make it ready; everything that can be wrong with the data or the belief is found here.

    Args:
        data: The table.
        settings: What is asked for.
        unlabelled: A table of the rows that the belief is about, if not those of the first; labels are not looked at.
    """
    table = read_table(data)
    find_classes(table, settings.target)
    names = label_names(table, settings.target)
    rows = split(names, test_fraction=settings.test_fraction, val_fraction=settings.val_fraction, seed=settings.seed)
    preprocessing, notes = fit_preprocessing(table, target=settings.target, rows=rows.train, drop=settings.drop)
    features, more = preprocessing.transform(table)
    inputs, labels = torch.from_numpy(features), torch.from_numpy(preprocessing.labels(table))
    train, val, test = ((inputs[part], labels[part]) for part in (rows.train, rows.val, rows.test))
    counts = torch.bincount(train[1], minlength=len(preprocessing.classes))
    there, about = None, None
    if unlabelled is not None:
        found, told = preprocessing.transform(read_table(unlabelled, columns=preprocessing.columns))
        there, about = torch.from_numpy(found), f"the cases in {unlabelled.name}"
        more += [f"{unlabelled.name}: {text}" for text in told]
    summaries: list[SummaryLikelihood] = []
    words = None
    if settings.says_something:
        shares = [float(share) for share in counts.double() / counts.sum()]
        summaries, words = build_summaries(
            settings, preprocessing.classes, shares=shares, num_train=len(train[1]), about=about
        )
        notes += filter(
            None,
            (
                below_guessing(settings, preprocessing.classes, shares=shares),
                above_labels(settings, len(train[1])),
            ),
        )
        if not settings.how.believes:
            notes.append(f"the method {settings.method} does not use what is believed: it is only shown in the report")
    else:
        notes.append(
            "nothing was said about the task: --accuracy, how many cases can be decided, or --class-fractions would "
            "bring in the Summary ELBO"
        )
    place = None if unlabelled is None else unlabelled.name
    shift = None
    if there is not None and settings.class_fractions is not None and settings.how.believes:
        shift = LabelShift.from_labels(train[1], fractions_of(settings, preprocessing.classes, shares=()))
    return Task(data.name, preprocessing, train, val, test, summaries, words, (*notes, *more), there, place, shift)


# --- training ---


def train(
    task: Task,
    settings: Settings,
    folder: Path,
    *,
    identity: dict[str, Any],
    device: str = "cpu",
    replace: bool = False,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Train, test, and write the folder; a run that was killed goes on where its checkpoint left it.

    Args:
        task: What to train on.
        settings: How.
        folder: Where results go; it exists and can be written to.
        identity: Settings and checksum of the data, see `identity_of`.
        device: Where to train.
        replace: Whether to remove another model from the folder first.
        progress: Show a bar; if not given, on a terminal.

    Returns:
        What ``metrics.json`` holds.
    """
    if replace:
        saved_model.clear(folder)
    saved_model.remove_unfinished(folder)
    saved_model.write_json(folder / saved_model.SETTINGS, {"format": saved_model.SETTINGS_FORMAT, "settings": identity})
    num_train = len(task.train[1])
    description = {
        "widths": [task.preprocessing.num_features, *settings.hidden, task.num_classes],
        "bayesian": settings.how.bayesian,
        "prior_std": settings.prior_std,
        "init_std": INIT_STD,
        "seed": settings.seed,
    }
    network = saved_model.make_network(description)
    assert settings.method is not None
    objective = objective_for(
        settings.method,
        num_data=num_train,
        steps=settings.steps,
        summary=task.summary if len(task.summaries) == 1 else task.summaries or None,
        kl_weight=settings.kl_weight,
        label_shift=task.label_shift,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the network is correct on")  # said below, where results are
        result = fit(
            network,
            objective,
            task.train,
            task.val,
            unlabelled=task.unlabelled,
            steps=settings.steps,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            seed=settings.seed,
            device=device,
            checkpoint=folder / saved_model.CHECKPOINT,
            checkpoint_every=CHECKPOINT_SECONDS,
            log=folder / saved_model.LOG,
            progress=progress,
        )
    check = result.label_check
    begin = time.perf_counter()
    predicted = {
        part: saved_model.predict_on_host(network, inputs, objective, draws=settings.draws, seed=settings.seed)
        for part, inputs in (("val", task.val[0]), ("test", task.test[0]), ("unlabelled", task.unlabelled))
        if inputs is not None
    }
    if task.label_shift is not None:  # labelled rows are evaluated as they are, in the domain that they come from
        there = predicted["unlabelled"]
        predicted["unlabelled"] = there.with_log_probs(task.label_shift.to_use(there.log_probs))
    elsewhere = {} if task.unlabelled is None else {"unlabelled": len(task.unlabelled)}
    temperature = fitted_temperature(predicted["val"], task.val[1])
    metrics = {
        "format": saved_model.METRICS_FORMAT,
        **scores(predicted["test"], task.test[1], temperature),
        **outcomes.by_class(predicted["test"], task.test[1], task.preprocessing.classes).to_dict(),
        "rows": {"train": num_train, "val": len(task.val[1]), "test": len(task.test[1]), **elsewhere},
        "features": task.preprocessing.num_features,
        "classes": list(task.preprocessing.classes),
        "method": settings.method,
        "belief": task.words,
        "warnings": [str(check)] if check is not None and check.below_majority else [],
        **belief_checks(task, settings, predicted),
        "validation": validation_facts(task, predicted["val"]),
    }

    def report(path: Path) -> None:
        from selbo.report.page import write_page

        seconds = result.seconds + time.perf_counter() - begin
        write_page(results_of(task, settings, predicted, metrics, seconds=seconds), path)

    saved_model.write_model(
        folder,
        network=network,
        description=description,
        preprocessing=task.preprocessing,
        metrics=metrics,
        write_report=report,
        facts={
            "method": settings.method,
            "target": settings.target,
            "classes": list(task.preprocessing.classes),
            "belief": task.words,
            "num_train": num_train,
            "temperature": temperature,
            "label_shift": None if task.label_shift is None else asdict(task.label_shift),
            "data": {"name": task.name, "sha256": identity["data_sha256"]},
            "unlabelled": None
            if task.unlabelled is None
            else {"name": task.place, "sha256": identity["unlabelled_sha256"], "rows": len(task.unlabelled)},
        },
    )
    return metrics


# --- what came out ---


def belief_checks(task: Task, settings: Settings, predicted: dict[str, Prediction]) -> dict[str, Any]:
    """What the validation and test rows, none of which was trained on, clearly say against the belief.

    Returns:
        ``contradictions``, one sentence each, and ``shortfall``, a sentence if fewer rows than stated are classified
        correctly, or None: there, the network may be at fault. A belief about unlabelled rows is not checked.
    """
    if task.summary is None or not settings.how.believes or task.unlabelled is not None:
        return {"contradictions": [], "shortfall": None}
    labels = torch.cat([task.val[1], task.test[1]])
    log_probs = torch.cat([predicted[part].log_probs for part in ("val", "test")])
    verdicts = check_belief(task.summary, labels, log_probs=log_probs, seed=settings.seed)
    missed = [shortfall(each, labels) for each in verdicts]
    return {
        "contradictions": [
            str(each) for each, text in zip(verdicts, missed, strict=True) if each.contradicted and text is None
        ],
        "shortfall": next((text for text in missed if text is not None), None),
    }


def validation_facts(task: Task, prediction: Prediction) -> dict[str, float]:
    """How the validation rows are predicted: NLL, beside that of a constant answer, accuracy, and best temperature."""
    labels, counts = task.val[1], torch.bincount(task.train[1], minlength=task.num_classes).clamp(min=1).double()
    return {
        "nll": F.nll_loss(prediction.log_probs.double(), labels).item(),
        "constant_nll": -(counts / counts.sum()).log()[labels].mean().item(),
        "accuracy": (prediction.classes == labels).double().mean().item(),
        "best_temperature": calibrate.temperature(prediction.log_probs, labels, prior_strength=0),
    }


def fitted_temperature(prediction: Prediction, labels: Tensor) -> float:
    """Temperature by the validation rows."""
    return calibrate.temperature(prediction.log_probs, labels)


def scores(prediction: Prediction, labels: Tensor, temperature: float | None) -> dict[str, Any]:
    """Metrics as predicted, and after temperature scaling, with the temperature; None where it is not known."""
    return {
        "metrics": outcomes.metrics_of(prediction, labels),
        "temperature": temperature,
        "calibrated": None
        if temperature is None
        else outcomes.metrics_of(at_temperature(prediction, temperature), labels),
    }


def evaluate(model: saved_model.Trained, data: Path, *, draws: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Metrics of a model on a table with labels, and what a user should be told about it."""
    table = read_table(data, columns=(*model.preprocessing.columns, model.preprocessing.target))
    labels = torch.from_numpy(model.preprocessing.labels(table))
    inputs, notes = model.preprocessing.transform(table)
    if saved_model.digest(data) == model.manifest["data"]["sha256"]:
        notes.append("this is the file that the model was trained on: these metrics flatter it")
    prediction = model.predict(inputs, draws=draws, seed=seed)
    classes = list(model.preprocessing.classes)
    by_class = outcomes.by_class(prediction, labels, classes).to_dict()
    return {**scores(prediction, labels, model.temperature), **by_class, "classes": classes}, notes


def results_of(
    task: Task, settings: Settings, predicted: dict[str, Prediction], metrics: dict[str, Any], *, seconds: float
) -> Comparison:
    """What the report shows: one method, one seed."""
    classes, counts = task.preprocessing.classes, task.train[1].bincount(minlength=task.num_classes)
    summary, prediction = task.summary, predicted["test"]
    believed, found = predicted.get("unlabelled", prediction), outcomes.by_class(prediction, task.test[1], classes)
    but = ""
    if task.unlabelled is not None:
        but = (
            f"; but what was believed is about the {len(task.unlabelled)} rows of {task.place}, and compared with them"
        )
    return Comparison(
        title=f"{settings.target} from {task.name}",
        description=(
            f"A network with {'hidden layers' if len(settings.hidden) > 1 else 'one hidden layer'} of "
            f"{' and '.join(map(str, settings.hidden))} units learned to predict {settings.target} from "
            f"{len(task.preprocessing.inputs)} columns, by the method {settings.how.title}. Everything below is about "
            f"the test rows, which it did not see{but}."
        ),
        takeaway=outcomes.takeaway_of(
            found,
            most_frequent=classes[int(counts.argmax())],
            confidence=prediction.probs.amax(-1).double().mean().item(),
        ),
        conclusion=in_words(metrics),
        task=ClassificationTask(
            num_train=len(task.train[1]),
            num_test=len(task.test[1]),
            num_classes=len(classes),
            class_names=tuple(classes),
            class_counts=tuple(counts.tolist()),
        ),
        belief=None
        if summary is None or task.words is None
        else outcomes.describe_belief(summary, task.words, classes),
        methods=(settings.how.title,),
        seeds=(settings.seed,),
        runs=(
            Outcome(
                method=settings.how.title,
                seed=settings.seed,
                conditions={CLEAN: Measurement(level=None, metrics={name: metrics["metrics"][name] for name in SHOWN})},
                histogram=None if summary is None else outcomes.region_masses(believed, summary.partition),
                per_class=found.per_class,
                confusion=found.confusion,
                reliability=outcomes.reliability_of(prediction, task.test[1]),
                entropy=outcomes.entropies(prediction, None),
                seconds=seconds,
            ),
        ),
        clean=CLEAN,
        made_by=outcomes.made_by(seconds),
    )


def in_words(metrics: dict[str, Any]) -> str:
    """Warnings if held-out rows contradict the belief, and what temperature scaling would change."""
    said = "".join(f"Warning: {text}. " for text in metrics["warnings"])
    if against := "; ".join(metrics["contradictions"]):
        said += f"Warning: the held-out rows contradict what was stated, if it was about such rows: {against}. "
    if metrics["shortfall"] is not None:
        said += f"Warning: {metrics['shortfall']}. "
    return said + _scaling_in_words(metrics)


def _scaling_in_words(metrics: dict[str, Any]) -> str:
    """What is odd about the predictions of the validation rows, and what temperature scaling would change."""
    rows, before, after, seen = metrics["rows"]["val"], metrics["metrics"], metrics["calibrated"], metrics["validation"]
    said, hottest = "", calibrate.TEMPERATURE_BOUNDS[1]
    if seen["nll"] > seen["constant_nll"]:
        said = (
            f"On the {rows} validation rows the predictions are worse than a constant answer: their NLL is "
            f"{seen['nll']:.3f}, that of the class frequencies of the training rows {seen['constant_nll']:.3f}. "
        )
        if seen["best_temperature"] >= hottest:
            said += f"No temperature mends that: the best one lies at its upper bound, {hottest:g}. "
    elif seen["accuracy"] == 1:
        said = (
            f"All {rows} validation rows are classified correctly: they do not show how much confidence is too much, "
            "and only its prior keeps the temperature up. "
        )
    return said + (
        f"Temperature scaling on the {rows} validation rows (T = {metrics['temperature']:.3g}) would change the NLL "
        f"from {before['nll']:.3f} to {after['nll']:.3f} and the ECE from {100 * before['ece']:.1f} % to "
        f"{100 * after['ece']:.1f} %; it is not applied unless asked for."
    )

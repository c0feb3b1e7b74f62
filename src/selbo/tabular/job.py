"""A training job: its files and settings, and what it states, in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selbo._files import require_table
from selbo.estimator import Statement, SummaryClassifier, storage
from selbo.estimator.settings import POOL_BASE, choose_base
from selbo.presets import METHODS, Method
from selbo.tabular import saved_model
from selbo.tabular.groups import GroupSource
from selbo.tabular.problems import Problems
from selbo.tabular.splits import (
    FEWEST_TO_VALIDATE,
    TEST_FRACTION,
    VAL_FRACTION,
)


def model_title(classifier: SummaryClassifier, base: str) -> str:
    """What is trained, in words."""
    return "pool of classifiers" if base == POOL_BASE else METHODS[classifier.method].title


@dataclass(frozen=True)
class Job:
    """A training job; the same job on the same data gives the same result.

    Attributes:
        data: The table.
        target: The column with the labels; may be None with groups.
        classifier: Not fitted; its ``random_state`` is a seed, and every label is a class.
        unlabelled: A table of unlabelled rows that the belief is about, instead of those of ``data``; its labels are
            ignored.
        drop: Columns to leave out.
        test_fraction: Share of the labelled rows for testing; if not given, .2, or 0 if there is a table to test on.
        val_fraction: Share of the labelled rows for validation; if not given, .1, or 0 if there are fewer than 200.
        groups: Where class fractions of groups of rows are stated, if they are; labels may then be missing.
        test: A table of labelled rows to test on.
        keep: Columns to use even if they look like identifiers or free text.
        id_column: Column that identifies rows: no input, but kept in predictions.
        stream: Whether the table is read in parts, in bounded memory; the classifier is then a network.
        one_pass: Whether a streamed table is trained on for at least one pass, instead of the steps of the classifier.
        no_header: Whether the first line of each table is a row, except that of the fractions of groups.
    """

    data: Path
    target: str | None
    classifier: SummaryClassifier
    unlabelled: Path | None = None
    drop: Sequence[str] = ()
    test_fraction: float | None = None
    val_fraction: float | None = None
    groups: GroupSource | None = None
    test: Path | None = None
    keep: Sequence[str] = ()
    id_column: str = ""
    stream: bool = False
    one_pass: bool = False
    no_header: bool = False

    def __post_init__(self) -> None:
        if self.test is not None and self.test_fraction:
            raise ValueError("`test` and `test_fraction` cannot both be given: choose one")

    @property
    def states_something(self) -> bool:
        """Whether a user states something about all cases."""
        return self.classifier.accuracy is not None or self.classifier.class_fractions is not None

    def shares(self, labels: int) -> tuple[float, float]:
        """Shares of the labelled rows for testing and for validation."""
        test, val = self.test_fraction, self.val_fraction
        if test is None:
            test = TEST_FRACTION if self.test is None else 0.0
        return test, (VAL_FRACTION if labels >= FEWEST_TO_VALIDATE else 0.0) if val is None else val

    @property
    def method(self) -> Method:
        """The training method."""
        return METHODS[self.classifier.method]

    @property
    def title(self) -> str:
        """What is trained, in words."""
        return model_title(self.classifier, choose_base(self.classifier, groups=self.groups is not None))

    @property
    def seed(self) -> int:
        """Seed for all randomness."""
        assert isinstance(self.classifier.random_state, int)
        return self.classifier.random_state

    def identity(self) -> dict[str, Any]:
        """Settings and checksums of the data. A folder with another identity is not resumed."""
        files = {"data_sha256": self.data, "unlabelled_sha256": self.unlabelled, "test_sha256": self.test}
        stated: dict[str, Any] = {}
        if self.groups is not None:
            files["group_fractions_sha256"] = self.groups.fractions
            stated = {"groups": self.groups.column, "group_concentration": self.groups.concentration}
            if self.groups.classes is not None:
                stated["group_classes"] = list(self.groups.classes)
        problems = Problems()
        for file in filter(None, files.values()):
            problems.attempt(require_table, file)
        problems.stop()
        settings = storage.export_settings(self.classifier)
        if self.stream:
            stated["stream"] = True
            settings["steps"] = "one pass" if self.one_pass else settings["steps"]
        if self.no_header:
            stated["no_header"] = True
        return {
            "target": self.target,
            "seed": settings.pop("random_state"),
            **settings,
            "drop": list(self.drop),
            "keep": list(self.keep),
            "id": self.id_column,
            "test_fraction": self.test_fraction,
            "val_fraction": self.val_fraction,
            **stated,
            **{name: saved_model.digest(file) for name, file in files.items() if file is not None},
        }


def describe_statement(
    job: Job, stated: Statement, classes: Sequence[str], *, about_unlabelled: bool | None = None
) -> str:
    """Describe the belief in words; ``about_unlabelled`` says that it is about rows of the table without label."""
    classifier, about = job.classifier, "all cases" if job.unlabelled is None else f"the cases in {job.unlabelled.name}"
    if about_unlabelled and job.unlabelled is None:
        about = "the cases without label"
    if job.groups is not None:
        return _groups_in_words(job, stated, classes)
    source = "as in the training rows" if classifier.class_fractions is None else "as stated"
    if stated.fraction_uncertainty and classifier.accuracy is None:
        source += f", give or take {100 * stated.fraction_uncertainty:g}"
    fractions = f"{_fractions_in_words(classes, stated.class_fractions)} ({source})"
    if classifier.accuracy is None:
        return f"Of {about}, {fractions}."
    return f"About {100 * classifier.accuracy:g} % of {about} can be decided correctly; {fractions}."


def _groups_in_words(job: Job, stated: Statement, classes: Sequence[str]) -> str:
    assert job.groups is not None
    assert stated.groups is not None
    classifier, strength = job.classifier, stated.groups.concentration
    low, high = float(strength.min()), float(strength.max())
    worth = f"a concentration of {low:.4g}" if low == high else f"a concentration of {low:.4g} to {high:.4g}"
    if job.groups.concentration == "auto":
        worth = "a concentration that held-out groups decide"
    said = (
        f"The class fractions of {stated.groups.num_groups} groups ({job.groups.column}) are as stated in "
        f"{job.groups.fractions.name}, with {worth}."
    )
    if classifier.class_fractions is not None:
        said += f" Of all cases, {_fractions_in_words(classes, stated.class_fractions)} (as stated)."
    if classifier.accuracy is not None:
        said += f" About {100 * classifier.accuracy:g} % of all cases can be decided correctly."
    return said


def _fractions_in_words(names: Sequence[str], fractions: Sequence[float]) -> str:
    classes = [f"class {name}" if name[-1:].isdigit() else name for name in names]  # not two numbers in a row
    shown = [f"{name} makes up {100 * share:.3g} %" for name, share in zip(classes, fractions, strict=True)]
    if len(shown) <= 4:
        return f"{', '.join(shown[:-1])} and {shown[-1].replace('makes up ', '')}"
    order = sorted(range(len(classes)), key=lambda k: fractions[k])
    return (
        f"the most frequent class, {classes[order[-1]]}, makes up {100 * fractions[order[-1]]:.3g} % and the rarest, "
        f"{classes[order[0]]}, {100 * fractions[order[0]]:.3g} %"
    )

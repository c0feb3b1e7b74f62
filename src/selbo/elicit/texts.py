"""The belief as text to copy: Python, scikit-learn, a study in TOML, a command. What cannot be said is said so."""

import shlex
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from selbo.elicit.state import SHELL_THRESHOLDS, UNEQUAL_EDGES, State, expected
from selbo.summary.beliefs import Belief, Beta, Masses

Array = NDArray[np.float64]

STUDY_BINS: Final = 10
STUDY_CONFIDENCE_EDGES: Final = (0.3, 0.5, 0.7, 0.85, 0.95)
"""Regions that a study has names for; tests compare them with what a study reads."""

TRAIN_BINS: Final = 10
TRAIN_CORNERS: Final = 20
TRAIN_CONFIDENCE_EDGES: Final = (0.3, 0.5, 0.7, 0.9)
"""Regions that `selbo train` and `SummaryClassifier` take by themselves; tests compare them with theirs."""

SAME_MASS: Final = 1e-9


def copies_of(state: State, belief: Belief, s0: Array) -> dict[str, dict[str, str]]:
    """For each language a text, empty where there is none, and a note."""
    study, study_note = _study(state, s0)
    command, command_note = _command(state)
    classifier, classifier_note = _classifier(state, belief)
    return {
        "python": {"text": _python(state, belief), "note": ""},
        "sklearn": {"text": classifier, "note": classifier_note},
        "toml": {"text": study, "note": study_note},
        "command": {"text": command, "note": command_note},
    }


# --- Python ---


def _python(state: State, belief: Belief) -> str:
    lines = ["import selbo", ""]
    if state.names:
        shown = ", ".join(f"{k} = {name!r}" for k, name in enumerate(state.names))
        lines.append(f"# classes: {shown}")
    if isinstance(belief, Masses) and state.source == "scores":
        lines.append(f"# masses counted in {state.rows} predictions of an earlier model")
    lines.append(f"partition = {_partition(state)}")
    lines.append(f"belief = {_belief(state, belief)}")
    lines.append(f"summary = selbo.SummaryLikelihood(partition, belief, concentration={state.concentration!r})")
    return "\n".join([*lines, ""])


def _partition(state: State) -> str:
    edges = _listed(state.levels)
    return {
        "equal": f"selbo.ScoreBins.equal({state.bins})",
        "unequal": f"selbo.ScoreBins({edges})",
        "edges": f"selbo.ScoreBins({edges})",
        "shells": f"selbo.CornerShells({state.classes}, thresholds={edges})",
        "classes": f"selbo.ClassRegions({state.classes})",
        "confidence": f"selbo.ConfidenceBins({edges}, num_classes={state.classes})",
    }[state.regions]


def _belief(state: State, belief: Belief) -> str:
    if isinstance(belief, Masses):
        return f"selbo.Masses({_listed(belief.values)})"
    if state.fractions is None:
        return f"selbo.expect(accuracy={state.accuracy!r}, num_classes={state.classes})"
    return f"selbo.expect(accuracy={state.accuracy!r}, class_fractions={_listed(state.fractions)})"


def _classifier(state: State, belief: Belief) -> tuple[str, str]:
    """A classifier for scikit-learn, which sorts its classes: they are named, or have to be in that order."""
    if state.source == "expect" and (state.regions == "classes" or _taken_by_train(state)):
        arguments = [] if state.regions == "classes" else [f"accuracy={state.accuracy!r}"]
        arguments.append(f"class_fractions={_fractions(state)}")
        if state.regions != "classes" and state.classes > TRAIN_CORNERS:  # else it warns that these see no class
            arguments.append(f"partition={_partition(state)}")
    elif list(state.names) != sorted(state.names):
        return "", "SummaryClassifier has its classes in sorted order: list them so here, or use the Python above."
    else:
        arguments = [f"belief={_belief(state, belief)}", f"partition={_partition(state)}"]
    arguments.append(f"concentration={state.concentration!r}")
    lines = ["import selbo", "", "classifier = selbo.SummaryClassifier(", *(f"    {each}," for each in arguments), ")"]
    note = "Then classifier.fit(X, y). "
    if state.names:
        note += "The names must be those of the labels in y."
    else:
        note += "The classes are those of y in sorted order: text by alphabet, numbers by size."
    return "\n".join([*lines, ""]), note


def _fractions(state: State) -> str:
    if not state.names:
        return _listed(state.shares)
    return "{" + ", ".join(f"{n!r}: {float(s)!r}" for n, s in zip(state.names, state.shares, strict=True)) + "}"


def _listed(values: Any) -> str:
    return "[" + ", ".join(repr(float(value)) for value in values) + "]"


# --- a study ---


def _study(state: State, s0: Array) -> tuple[str, str]:
    partition, problem = _study_partition(state)
    belief, note = ("", "") if problem else _study_belief(state, s0)
    if not belief:
        return "", problem or note
    lines = [
        "[[tracks.selbo.methods]]",
        'name = "stated"',
        'title = "Summary ELBO, as stated"',
        'objective = "summary_elbo"',
        "bayesian = true",
        f'partition = "{partition}"',
        f'belief = "{belief}"',
        f"concentration = {state.concentration!r}",
    ]
    return "\n".join([*lines, ""]), note


def _study_partition(state: State) -> tuple[str, str]:
    """Name of the regions in a study, or the reason why they have none."""
    confidence = tuple(edge for edge in STUDY_CONFIDENCE_EDGES if edge > 1 / state.classes)
    own = "A study has no bins with edges of one's own: only ten equal ones and those finer at both ends."
    name, same, problem = {
        "equal": ("equal", state.bins == STUDY_BINS, f"A study knows {STUDY_BINS} equal bins, not {state.bins}."),
        "unequal": ("unequal", True, ""),
        "edges": ("unequal", state.levels == UNEQUAL_EDGES, own),
        "shells": (
            "shells",
            state.levels == SHELL_THRESHOLDS,
            f"A study knows corner shells with the thresholds {_spoken(SHELL_THRESHOLDS)} only.",
        ),
        "classes": ("classes", True, ""),
        "confidence": (
            "confidence",
            state.levels == confidence,
            f"A study knows confidence bins with the edges {_spoken(confidence)} only.",
        ),
    }[state.regions]
    return (name, "") if same else ("", problem)


def _study_belief(state: State, s0: Array) -> tuple[str, str]:
    """Words for the belief in a study, empty if there are none, and what a user should know."""
    if state.source == "expect" or (state.source == "draw" and not state.heights):
        if state.fractions is None:
            text = "fractions" if state.regions == "classes" else f"expect({state.accuracy!r})"
            return text, "For data whose classes are equally frequent; a study of others puts in their own fractions."
        if state.classes == 2:
            beta = expected(state)
            assert isinstance(beta, Beta)
            return f"beta({beta.a!r}, {beta.b!r})", ""
        return "", (
            "A study of more than two classes takes class fractions from its data, so it cannot be told these: make "
            "all classes equally frequent, or use Python."
        )
    if state.regions == "shells":
        shells = s0[:-1].reshape(2, state.classes)
        if np.ptp(shells, axis=1).max() < SAME_MASS:
            corner, middle = (float(each) for each in shells.sum(1))
            return f"shells({corner!r}, {middle!r}, {float(s0[-1])!r})", "The same for every class, as drawn."
    return "", (
        "A study reads two numbers or a Beta distribution, not a histogram (but for corner shells that are the same "
        "for every class): use Python."
    )


# --- the command ---


def _command(state: State) -> tuple[str, str]:
    if state.source != "expect":
        return "", "The command reads expected accuracy and class fractions, not a histogram: use Python."
    if state.regions != "classes" and not _taken_by_train(state):
        return "", (
            "The command chooses its regions by itself: ten equal bins for two classes, corner shells with the "
            f"thresholds {_spoken(SHELL_THRESHOLDS)} for up to {TRAIN_CORNERS}, confidence bins with the edges "
            f"{_spoken(TRAIN_CONFIDENCE_EDGES)} for more. Choose those, or use Python."
        )
    named = bool(state.names) and not any("," in name for name in state.names)
    fractions = [_plain(share) for share in state.shares]
    if named:
        fractions = [f"{name}={share}" for name, share in zip(state.names, fractions, strict=True)]
    accuracy = [] if state.regions == "classes" else ["--accuracy", _plain(state.accuracy)]
    words = ["selbo", "train", "data.csv", "--target", "label", "--out", "model", *accuracy]
    words += ["--class-fractions", ",".join(fractions), "--concentration", _plain(state.concentration)]
    note = "data.csv, label and model stand for your table, the column with the classes, and a folder."
    if not named:
        note += " The fractions are in the order of the classes there: text by alphabet, numbers by size."
    return f"{shlex.join(words)}\n", note


def _taken_by_train(state: State) -> bool:
    if state.classes == 2:
        return state.regions == "equal" and state.bins == TRAIN_BINS
    if state.classes <= TRAIN_CORNERS:
        return state.regions == "shells" and state.levels == SHELL_THRESHOLDS
    return state.regions == "confidence" and state.levels == TRAIN_CONFIDENCE_EDGES


def _plain(value: float) -> str:
    """A number as one would type it, if that is the same number."""
    text = f"{value:g}"
    return text if float(text) == value else repr(value)


def _spoken(values: tuple[float, ...]) -> str:
    shown = [f"{value:g}" for value in values]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]

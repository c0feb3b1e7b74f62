"""The belief as text to copy: Python, scikit-learn, a command; a note where a form cannot express it."""

import inspect
import shlex
from typing import Any, Final, NamedTuple

from selbo.elicit.state import SHELL_THRESHOLDS, State
from selbo.presets import MOST_CONCENTRATION
from selbo.summary.beliefs import Belief
from selbo.summary.partitions import Partition

TRAIN_BINS: Final = 10
TRAIN_CORNERS: Final = 20
TRAIN_CONFIDENCE_EDGES: Final = (0.3, 0.5, 0.7, 0.9)
"""Default regions of `selbo train` and `SummaryClassifier`; a test compares the two."""

LOOP: Final = '''
def summary_term(log_probs, step, steps):
    """Subtract this from the mean loss of a batch; log_probs has shape (B, K), and step begins at 0."""
    return selbo.labels_first(step, steps) * summary(log_probs) / num_labels


# In your training loop:
#     loss = loss - summary_term(log_probs, step, steps)
# The term is absent in the first quarter of the steps: a belief that treats classes alike is as likely
# with the classes swapped, so the labels must decide first which is which.
'''


class Own(NamedTuple):
    """Parts of the texts that come from objects instead of the state.

    Attributes:
        partition: Regions that the page has no name for.
        belief: A belief that is not the one of accuracy and class fractions.
    """

    partition: Partition | None = None
    belief: Belief | None = None


def build_copies(
    state: State, *, partition: Partition | None = None, belief: Belief | None = None
) -> dict[str, dict[str, str]]:
    """A text and a note per language; the text is empty if it cannot express the belief.

    Args:
        state: What was entered.
        partition: Instead of the regions of the state.
        belief: Instead of the belief that accuracy and class fractions give.
    """
    own = Own(partition, belief)
    command, command_note = _command(state, own)
    classifier, classifier_note = _classifier(state, own)
    return {
        "python": {"text": _python(state, own), "note": _python_note(state)},
        "sklearn": {"text": classifier, "note": classifier_note},
        "command": {"text": command, "note": command_note},
    }


# --- Python ---


def _python(state: State, own: Own) -> str:
    lines = [*_imports(own), ""]
    if state.names:
        shown = ", ".join(f"{k} = {name!r}" for k, name in enumerate(state.names))
        lines.append(f"# classes: {shown}")
    if state.basis == "scores":
        lines.append(f"# masses counted in {state.rows} predictions of an earlier model")
    lines.append(f"num_labels = {state.num_labels or '...'}  # labelled examples that you train on")
    lines.append(f"partition = {_partition(state, own)}")
    lines.append(f"belief = {_belief(state, own)}")
    strength = _strength(state) or [f"concentration=min({MOST_CONCENTRATION:g}, num_labels)"]
    lines.append(f"summary = selbo.SummaryLikelihood({', '.join(['partition', 'belief', *strength])})")
    return "\n".join([*lines, "", LOOP])


def _python_note(state: State) -> str:
    return "" if state.num_labels else "Fill in num_labels, or say on this page how many labelled examples you have."


def _strength(state: State) -> list[str]:
    """Arguments for a stated concentration; none if the number of labels decides."""
    if state.concentration is None:
        return []
    return [f"concentration={state.concentration!r}", *(["overrule_labels=True"] if state.overrules_labels else [])]


def _imports(own: Own) -> list[str]:
    """Import lines: the library, and the modules of the user's own classes."""
    modules = {module for each in own if each is not None for module in _modules(each.to_dict())} - {"selbo"}
    return ["import selbo", *(f"import {module}" for module in sorted(modules))]


def _modules(described: Any) -> set[str]:
    """Modules of an object and of its arguments."""
    if isinstance(described, list):
        return {module for each in described for module in _modules(each)}
    if not isinstance(described, dict) or "type" not in described:
        return set()
    return {described["type"].rpartition(".")[0], *_modules(list(described["arguments"].values()))}


def _source(thing: Partition | Belief) -> str:
    """The call that creates an object; arguments that it does not store are left for the user to fill in."""
    described, written = thing.to_dict(), []
    for i, (name, parameter) in enumerate(inspect.signature(type(thing)).parameters.items()):
        if name not in described["arguments"]:
            if parameter.default is inspect.Parameter.empty:
                written.append(f"{name}=...")
            continue
        value = described["arguments"][name]
        if value != parameter.default:
            written.append(f"{name}={_written(value)}" if i else _written(value))
    return f"{described['type']}({', '.join(written)})"


def _written(value: Any) -> str:
    """An argument: a value, or an object that is described."""
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict) and "type" in value:
        inner = ", ".join(f"{name}={_written(each)}" for name, each in value["arguments"].items())
        return f"{value['type']}({inner})"
    return repr(value)


def _partition(state: State, own: Own) -> str:
    if own.partition is not None:
        return _source(own.partition)
    edges = _listed(state.levels)
    return {
        "equal": f"selbo.ScoreBins.equal({state.bins})",
        "unequal": f"selbo.ScoreBins({edges})",
        "edges": f"selbo.ScoreBins({edges})",
        "shells": f"selbo.CornerShells({state.classes}, thresholds={edges})",
        "classes": f"selbo.ClassRegions({state.classes})",
        "confidence": f"selbo.ConfidenceBins({edges}, num_classes={state.classes})",
    }[state.regions]


def _belief(state: State, own: Own) -> str:
    if own.belief is not None:
        return _source(own.belief)
    if state.fractions is None:
        return f"selbo.expect(accuracy={state.accuracy!r}, num_classes={state.classes})"
    return f"selbo.expect(accuracy={state.accuracy!r}, class_fractions={_listed(state.fractions)})"


def _classifier(state: State, own: Own) -> tuple[str, str]:
    """A scikit-learn classifier. It sorts its classes, so they are named or must be in that order."""
    if own == Own() and (state.regions == "classes" or _taken_by_train(state)):
        arguments = [] if state.regions == "classes" else [f"accuracy={state.accuracy!r}"]
        arguments.append(f"class_fractions={_fractions(state)}")
        if state.regions != "classes" and state.classes > TRAIN_CORNERS:  # else it warns that these see no class
            arguments.append(f"partition={_partition(state, own)}")
    elif list(state.names) != sorted(state.names):
        return "", "SummaryClassifier has its classes in sorted order: list them so here, or use the Python above."
    else:
        arguments = [f"belief={_belief(state, own)}", f"partition={_partition(state, own)}"]
    arguments += _strength(state)
    lines = [*_imports(own), "", "classifier = selbo.SummaryClassifier(", *(f"    {each}," for each in arguments), ")"]
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


# --- the command ---


def _command(state: State, own: Own) -> tuple[str, str]:
    if own.belief is not None:
        return "", "The command reads expected accuracy and class fractions, not a histogram: use Python."
    if own.partition is not None or (state.regions != "classes" and not _taken_by_train(state)):
        return "", (
            "The command chooses its regions by itself: ten equal bins for two classes, corner shells with the "
            f"thresholds {_spoken(SHELL_THRESHOLDS)} for up to {TRAIN_CORNERS}, confidence bins with the edges "
            f"{_spoken(TRAIN_CONFIDENCE_EDGES)} for more. Choose those, or use Python."
        )
    words = ["selbo", "train", "data.csv", "--target", "label", "--out", "model"]
    if state.regions != "classes":
        words += ["--accuracy", _plain(state.accuracy)]
    fractions = [_plain(share) for share in state.shares]
    if state.names:  # one by one: a name may hold any character
        for name, share in zip(state.names, fractions, strict=True):
            words += ["--class-fraction", f"{name}={share}"]
    else:
        words += ["--class-fractions", ",".join(fractions)]
    if state.concentration is not None:
        words += ["--concentration", _plain(state.concentration)]
    if state.overrules_labels:
        words.append("--overrule-labels")
    note = "data.csv, label and model stand for your table, the column with the classes, and a folder."
    if state.regions != "classes" and state.classes > TRAIN_CORNERS:
        note += " With so many classes it has a summary of the class fractions beside that of confidence."
    if not state.names:
        note += " The fractions are in the order of the classes there: text by alphabet, numbers by size."
    return f"{shlex.join(words)}\n", note


def _taken_by_train(state: State) -> bool:
    if state.classes == 2:
        return state.regions == "equal" and state.bins == TRAIN_BINS
    if state.classes <= TRAIN_CORNERS:
        return state.regions == "shells" and state.levels == SHELL_THRESHOLDS
    return state.regions == "confidence" and state.levels == TRAIN_CONFIDENCE_EDGES


def _plain(value: float) -> str:
    """A short form of a number, if it is exact."""
    text = f"{value:g}"
    return text if float(text) == value else repr(value)


def _spoken(values: tuple[float, ...]) -> str:
    shown = [f"{value:g}" for value in values]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]

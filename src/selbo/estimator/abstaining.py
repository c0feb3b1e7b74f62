"""Answers of a classifier that may decline: labels where it is confident enough, None elsewhere."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from selbo.evaluation.decide import Abstention, abstain


def answer_or_abstain(
    classes: NDArray[Any], probs: NDArray[np.floating[Any]], rule: "float | Abstention | None"
) -> NDArray[Any]:
    """The most probable labels, and None where no answer is given.

    Args:
        classes: Labels of the classes.
        probs: Probabilities, shape (rows, classes).
        rule: Largest share of wrong answers, by the probabilities of these rows; or a rule of `selbo.decide.abstain`;
            or None to answer everywhere.

    Returns:
        Labels, shape (rows,): of the type of the classes without a rule, objects with one.
    """
    labels = np.asarray(classes[probs.argmax(1)])
    if rule is None:
        return labels
    found = rule if isinstance(rule, Abstention) else abstain(probs, max_risk=rule)
    answers = labels.astype(object)
    answers[~found(probs).numpy()] = None
    return np.asarray(answers)

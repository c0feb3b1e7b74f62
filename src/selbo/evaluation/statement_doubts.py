"""Doubts about statements: numbers that frozen predictions make implausible, before any label is seen.

Overconfident predictions are what a stated accuracy corrects, and class fractions of another domain are what offsets
correct. So a difference between what is stated and what predictions claim is no contradiction as such. What is doubted
here is rare if the statement is true.
"""

from collections.abc import Sequence
from typing import Final

from selbo.evaluation.check_belief import check_accuracy
from selbo.metrics.inputs import Array

FAR: Final = 0.1
"""Difference between what is stated and what predictions claim that is worth a check."""

VERY_FAR: Final = 0.35
"""Difference in accuracy that is worth a warning: few classifiers are so overconfident, so that a mistake in the
statement is more likely."""

HARDLY_FEWER: Final = 0.1
"""A classifier that avoids less than this part of the errors of a constant answer says hardly anything."""

MISSED: Final = 0.03
"""Difference between the stated accuracy and that after the correction which is worth a word."""


def leaves_hardly_anything(claimed: float, accuracy: float, largest_fraction: float) -> bool:
    """Whether a correction by groups takes away what predictions said beyond the class fractions.

    Args:
        claimed: Accuracy that the uncorrected predictions claim.
        accuracy: Accuracy that the corrected ones claim.
        largest_fraction: Fraction of the most frequent class after the correction.

    Example:
        >>> leaves_hardly_anything(0.99, 0.26, 0.2), leaves_hardly_anything(0.99, 0.9, 0.2)
        (True, False)
    """
    return claimed - accuracy > FAR and 1 - accuracy > (1 - HARDLY_FEWER) * (1 - largest_fraction)


def doubt_statement(
    *,
    accuracy: float | None,
    class_fractions: Sequence[float] | None,
    claimed: float,
    possible: float = 1.0,
    left: tuple[float, float] | None = None,
    correct: Array | None = None,
    tested: bool = False,
    classes: Sequence[object] | None = None,
) -> list[str]:
    """Warnings about a statement, one sentence each; none if it is plausible.

    Args:
        accuracy: Stated accuracy.
        class_fractions: Stated class fractions.
        claimed: Accuracy that the uncorrected predictions claim.
        possible: Largest accuracy that the answers can have with the stated class fractions.
        left: What predictions claim after a correction by groups: an accuracy, and the largest class fraction.
        correct: Whether each answer with a label is right, shape (n,), where there are labels.
        tested: Whether the statement comes from labels.
        classes: Names of the classes; their numbers if not given.

    Example:
        >>> (found,) = doubt_statement(accuracy=0.5, class_fractions=None, claimed=0.93)
        >>> print(found[:68])
        the predictions claim an accuracy of 93.0 %, far above the stated 50
    """
    found = []
    tested = tested or correct is not None
    if accuracy is not None:
        stated = f"{100 * accuracy:.3g} %"
        most = max(class_fractions or (0.0,))
        if class_fractions is not None and accuracy <= most:
            index = list(class_fractions).index(most)
            frequent = index if classes is None else classes[index]
            found.append(
                f"always answering {frequent!r} would be right in {100 * most:.3g} % of cases, no less than the stated "
                f"{stated}: check the accuracy and the class fractions"
            )
        if correct is not None and (seen := check_accuracy(accuracy, correct)).contradicted:
            found.append(
                f"{100 * seen.observed[0]:.1f} % of {seen.num_examples} labelled answers are right, which contradicts "
                f"the stated {stated}"
            )
        if not tested and abs(claimed - accuracy) > VERY_FAR:
            side = "below" if accuracy > claimed else "above"
            found.append(
                f"the predictions claim an accuracy of {100 * claimed:.1f} %, far {side} the stated {stated}: check it "
                "on a few labels"
            )
    elif left is not None and leaves_hardly_anything(claimed, *left):
        found.append(
            f"to agree with the groups, the predictions say hardly more than the class fractions, with an accuracy of "
            f"{100 * left[0]:.1f} % instead of {100 * claimed:.1f} %: check that the fractions are about these groups, "
            "and in the order of the classes"
        )
    elif not tested and claimed - possible > VERY_FAR:
        found.append(
            f"the predictions claim an accuracy of {100 * claimed:.1f} %, and with these class fractions at most "
            f"{100 * possible:.1f} % of the answers can be right: check that the fractions are about these rows, and "
            "in the order of the classes"
        )
    return found

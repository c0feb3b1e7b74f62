"""`BeliefCalibrator`: calibrate a fitted scikit-learn classifier to what is known about it, without labels."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_array, check_is_fitted

from selbo.estimator.abstaining import answer_or_abstain
from selbo.estimator.group_intake import GroupStatement, belief_about_groups
from selbo.evaluation.belief_calibration import UNLABELLED, UnreachableFractionError, fit_to_belief
from selbo.evaluation.decide import Abstention
from selbo.summary.likelihood import DEFAULT_CONCENTRATION


class BeliefCalibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Calibrate a classifier that is not trained again to its accuracy, to class fractions, or to both.

    Pass unlabelled inputs to `fit`, those that the statements are about. Labels are optional. Class fractions of many
    small groups of inputs, such as counts by day or ward, calibrate without an accuracy.

    Args:
        estimator: A fitted classifier with `predict_proba`; it is left as it is. None if inputs are probabilities
            themselves, one column per class.
        accuracy: Share of the classifier's answers that are right.
        class_fractions: Fraction of each class, in the order of ``estimator.classes_`` (of the columns without an
            estimator); or a mapping from classes to fractions.
        concentration: Number of observations behind the stated numbers.

    Attributes:
        classes_: The classes.
        calibration_: The fitted `selbo.evaluation.BeliefCalibration`: temperature, offsets and their errors.
        n_features_in_: Number of columns of the inputs.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.naive_bayes import GaussianNB
        >>> X, y = load_digits(return_X_y=True)
        >>> model = GaussianNB().fit(X[:500], y[:500])
        >>> calibrated = BeliefCalibrator(model, accuracy=0.8).fit(X[500:1000])
        >>> before, after = (
        ...     each.predict_proba(X[1000:]).max(1).mean() for each in (model, calibrated)
        ... )
        >>> round(float(before), 2), round(float(after), 2)
        (0.99, 0.78)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        accuracy: float | None = None,
        class_fractions: Sequence[float] | dict[Any, float] | None = None,
        concentration: float = DEFAULT_CONCENTRATION,
    ) -> None:
        self.estimator = estimator
        self.accuracy = accuracy
        self.class_fractions = class_fractions
        self.concentration = concentration

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        group_fractions: Any = None,
        group_concentration: "float | Mapping[Any, float] | None" = None,
    ) -> "BeliefCalibrator":
        """Fit the correction to unlabelled inputs; a warning says if they make a statement implausible.

        Args:
            X: Inputs of the classifier; or probabilities, if there is no estimator.
            y: Labels of the inputs, where there are some: None or NaN is an input without one, and so is -1 if it is
                no class. They enter as likelihood.
            groups: Group of each input, of any type; None or NaN for none.
            group_fractions: Class fractions of each group, as in `SummaryClassifier.fit`. They are about all inputs of
                a group, and fit a temperature and one offset per class (`selbo.calibrate_to_belief`).
            group_concentration: Concentration of these fractions, one number or one per group. If not given, they are
                counts of these very inputs, without an error.
        """
        if self.estimator is not None:
            check_is_fitted(self.estimator)
        probs = self._probs(X)
        self.classes_ = np.arange(probs.shape[1]) if self.estimator is None else np.asarray(self.estimator.classes_)
        if len(self.classes_) != probs.shape[1]:
            raise ValueError(
                f"`estimator` must have one probability per class, but has {len(self.classes_)} classes and "
                f"{probs.shape[1]} columns of probabilities"
            )
        self.n_features_in_ = np.shape(X)[1] if np.ndim(X) > 1 else 1
        stated = GroupStatement(groups, group_fractions, group_concentration)
        belief, of_rows = None, None
        if stated.is_given:
            if self.class_fractions is not None:
                raise ValueError("`class_fractions` and `group_fractions` state the same, but both are given")
            belief, of_rows = belief_about_groups(stated, self.classes_.tolist(), len(probs))
        try:
            fitted = fit_to_belief(
                _log(probs),
                belief,
                groups=of_rows,
                accuracy=self.accuracy,
                class_fractions=self._fractions(),
                concentration=self.concentration,
                labels=None if y is None else self._labels(y),
                classes=self.classes_.tolist(),
            )
        except UnreachableFractionError as error:
            raise ValueError(error.naming(f"class {self.classes_.tolist()[error.index]!r}")) from None
        for doubt in fitted.doubts:
            warnings.warn(doubt, UserWarning, stacklevel=2)
        self.calibration_ = fitted.calibration
        return self

    def predict_proba(self, X: Any) -> NDArray[np.floating[Any]]:
        """Calibrated probabilities, one column per class."""
        check_is_fitted(self, "calibration_")
        found = self.calibration_(_log(self._probs(X))).exp().numpy()
        return np.asarray(found / found.sum(1, keepdims=True))

    def predict(self, X: Any, *, abstain: "float | Abstention | None" = None) -> NDArray[Any]:
        """Most probable classes after the correction; a temperature alone does not change them.

        Args:
            X: Inputs of the classifier; or probabilities, if there is no estimator.
            abstain: Largest share of wrong answers: the least confident rows then get None instead of a class. It is
                kept if what was stated is true and single predictions are calibrated. Or a rule of
                `selbo.decide.abstain` that was fitted with labels.
        """
        probs = self.predict_proba(X)
        return answer_or_abstain(self.classes_, probs, abstain)

    def __sklearn_clone__(self) -> "BeliefCalibrator":
        """A calibrator with the same settings; the fitted classifier is kept, as it is not trained here."""
        return type(self)(
            self.estimator,
            accuracy=self.accuracy,
            class_fractions=clone(self.class_fractions, safe=False),
            concentration=self.concentration,
        )

    def _probs(self, inputs: Any) -> NDArray[np.float64]:
        if self.estimator is not None:
            return np.asarray(self.estimator.predict_proba(inputs), dtype=np.float64)
        probs = check_array(inputs, dtype=np.float64)
        if probs.shape[1] < 2 or (probs < 0).any() or (abs(probs.sum(1) - 1) > 1e-3).any():
            raise ValueError(
                "`X` must hold probabilities, two or more columns that sum to 1 in every row, but does not; logits and "
                "log-probabilities are for `selbo.calibrate_to_belief`"
            )
        return np.asarray(probs)

    def _fractions(self) -> list[float] | None:
        stated = self.class_fractions
        if stated is None or not isinstance(stated, dict):
            return None if stated is None else list(stated)
        if set(stated) != set(self.classes_.tolist()):
            raise ValueError(
                f"`class_fractions` must have the classes {self.classes_.tolist()}, but has {list(stated)}"
            )
        return [stated[each] for each in self.classes_.tolist()]

    def _labels(self, y: Any) -> NDArray[np.int64]:
        place = {each: k for k, each in enumerate(self.classes_.tolist())}
        found = np.full(len(y), UNLABELLED)
        for row, each in enumerate(np.asarray(y, dtype=object).tolist()):
            if each in place:
                found[row] = place[each]
            elif not (each is None or each == UNLABELLED or str(each) == "nan"):
                raise ValueError(f"`y` must hold classes of the classifier, {list(place)}, but got {each!r}")
        return found


def _log(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probs))

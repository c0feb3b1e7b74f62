"""Baselines for beliefs about the target domain, beyond their objectives."""

import random
import warnings
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from selbo import LabelShift, Prediction
from selbo.evaluation import bias_corrected_temperature, correct_prior, estimate_by_confusion, estimate_by_em
from selbo_lab.data.dataset import LabelledData
from selbo_lab.studies.run_spec import Recipe

LEAST_PROBABILITY: Final = 1e-3
"""Minimum probability of a class in scikit-learn predictions: a certain wrong one would have an infinite NLL."""

LEAST_LOG_PROB: Final = -100.0
"""Log-probabilities are clamped to this when a bias correction is fitted: a class may have probability zero."""

MOST_ITERATIONS: Final = 1000

FROZEN: Final = ("logistic", "forest", "boosted_trees")
"""Objectives that are scikit-learn classifiers at their defaults, as people have them."""

SCIKIT_LEARN: Final = ("label_spreading", "logistic_self_training", *FROZEN)
"""Objectives that are scikit-learn methods and train no network."""

ZERO_SHOT: Final = "zero_shot"
"""Objective of a classifier that is not trained: the inputs are its logits."""

ON_UNLABELLED: Final = ("entropy_minimisation", "expectation_regularisation")
"""Objectives with a term on unlabelled inputs that is not a summary."""


# --- label shift ---


class Corrected(NamedTuple):
    """Predictions for the target domain, and the class fractions used to correct them."""

    prediction: Prediction
    fractions: tuple[float, ...]


class Correction:
    """Corrects predictions for the target domain by the ratio of the class fractions.

    Args:
        how: ``known``, ``em``, ``em-bcts`` or ``bbse``.
        train: The labelled examples.
        known: Class fractions of the target domain.
        unlabelled: Returns the predictions for the unlabelled inputs; called only if needed.
        val: Predictions for the validation data.
        val_labels: Labels of the validation data.
    """

    def __init__(
        self,
        how: str,
        *,
        train: LabelledData,
        known: tuple[float, ...],
        unlabelled: Callable[[], Prediction],
        val: Prediction,
        val_labels: Tensor,
    ) -> None:
        self.before = LabelShift.from_labels(train.labels, known).before
        self.how, self.known, self.val, self.val_labels = how, known, val, val_labels
        self.unlabelled = None if how == "known" else unlabelled()
        self.bias_correction = None
        if how == "em-bcts":
            self.bias_correction = bias_corrected_temperature(val.log_probs.clamp(min=LEAST_LOG_PROB), val_labels)

    def __call__(self, prediction: Prediction, scaled: Callable[[Prediction], Prediction]) -> Corrected:
        """Correct predictions; ``scaled`` applies a temperature first, unless the correction has its own."""
        if self.bias_correction is not None:
            scaled = self._without_bias
        after = self._fractions(scaled)
        return Corrected(
            prediction.with_log_probs(correct_prior(scaled(prediction).log_probs, self.before, after)), after
        )

    def _without_bias(self, prediction: Prediction) -> Prediction:
        assert self.bias_correction is not None
        return prediction.with_log_probs(self.bias_correction.scale(prediction.log_probs.clamp(min=LEAST_LOG_PROB)))

    def _fractions(self, scaled: Callable[[Prediction], Prediction]) -> tuple[float, ...]:
        if self.unlabelled is None:
            return self.known
        if self.how == "bbse":
            return estimate_by_confusion(self.unlabelled.log_probs, self.val.log_probs, self.val_labels)
        return estimate_by_em(scaled(self.unlabelled).log_probs, self.before)


# --- self-training ---


def with_pseudo_labels(
    train: tuple[Tensor, Tensor], unlabelled: Tensor, log_probs: Tensor, threshold: float
) -> tuple[Tensor, Tensor]:
    """Add unlabelled inputs with their predicted classes to the training examples, where the confidence suffices.

    Args:
        train: Inputs and labels.
        unlabelled: Inputs (U, ...).
        log_probs: Predictions for them, (U, K).
        threshold: Smallest confidence of a prediction that becomes a label.
    """
    confidence, classes = log_probs.max(-1)
    sure = confidence.exp() >= threshold
    inputs, labels = train
    where = sure.to(unlabelled.device)
    return torch.cat([inputs, unlabelled[where]]), torch.cat([labels, classes[sure].to(labels)])


# --- scikit-learn ---


class Answers(nn.Module):
    """A scikit-learn classifier as a network whose logits are its log-probabilities.

    Args:
        classifier: A fitted classifier.
        num_classes: Number of classes K; an unseen class gets the minimum probability.
    """

    def __init__(self, classifier: Any, num_classes: int) -> None:
        super().__init__()
        self.classifier, self.num_classes = classifier, num_classes

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (B, K), on the device of the inputs."""
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about rows that no neighbour reaches
            found = self.classifier.predict_proba(inputs.flatten(1).cpu().numpy())
        probs = np.zeros((len(inputs), self.num_classes))
        probs[:, self.classifier.classes_] = found
        probs[~np.isfinite(probs).all(-1)] = 1 / self.num_classes
        probs = probs.clip(LEAST_PROBABILITY)
        return torch.from_numpy(np.log(probs / probs.sum(-1, keepdims=True))).to(inputs)


def scikit_learn(recipe: Recipe, train: LabelledData, unlabelled: LabelledData, *, seed: int = 0) -> Answers:
    """Fit a scikit-learn method to labelled examples and unlabelled inputs, on one core like any run."""
    before = random.getstate()  # the imports consume random numbers
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise ValueError("this method needs scikit-learn: pip install 'selbo[cli]'") from error
    finally:
        random.setstate(before)
    method: Any
    if recipe.objective in FROZEN:
        method = {
            "logistic": lambda: LogisticRegression(max_iter=MOST_ITERATIONS),
            "forest": lambda: RandomForestClassifier(random_state=seed),
            "boosted_trees": lambda: HistGradientBoostingClassifier(random_state=seed),
        }[recipe.objective]()
        unlabelled = unlabelled.rows([])
    elif recipe.objective == "label_spreading":
        kernel = {"kernel": "knn", "n_neighbors": recipe.neighbours} if recipe.neighbours else {"kernel": "rbf"}
        method = LabelSpreading(**kernel, alpha=recipe.clamping, max_iter=MOST_ITERATIONS)
    else:
        plain = LogisticRegression(C=recipe.inverse_penalty, max_iter=MOST_ITERATIONS)
        method = SelfTrainingClassifier(plain, threshold=recipe.threshold, max_iter=max(1, recipe.rounds))
    inputs = torch.cat([each.network_inputs().flatten(1) for each in (train, unlabelled)]).numpy()
    labels = torch.cat([train.labels, torch.full((len(unlabelled),), -1)]).numpy()
    with threadpool_limits(1), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about iterations that did not converge
        method.fit(inputs, labels)
    return Answers(method, train.num_classes)

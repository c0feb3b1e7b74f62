"""Training objectives: an `Objective` combines a likelihood of the labels, a KL divergence and further terms."""

from selbo.objectives.factories import (
    ELBO,
    CrossEntropy,
    EntropyMinimisation,
    Evidential,
    ExpectationRegularisation,
    LabelSmoothing,
    SummaryELBO,
)
from selbo.objectives.label_priority import LabelCheck, labels_first
from selbo.objectives.label_shift import LabelShift
from selbo.objectives.likelihoods import Categorical, DirichletEvidence, SmoothedCategorical, log_prob_of_labels
from selbo.objectives.objective import KL, Objective, Term, Terms, View
from selbo.objectives.regularisers import ClassFractions, negative_entropy
from selbo.objectives.unlabelled import Grouped
from selbo.posteriors.posterior import evaluation_mode

__all__ = [
    "ELBO",
    "KL",
    "Categorical",
    "ClassFractions",
    "CrossEntropy",
    "DirichletEvidence",
    "EntropyMinimisation",
    "Evidential",
    "ExpectationRegularisation",
    "Grouped",
    "LabelCheck",
    "LabelShift",
    "LabelSmoothing",
    "Objective",
    "SmoothedCategorical",
    "SummaryELBO",
    "Term",
    "Terms",
    "View",
    "evaluation_mode",
    "labels_first",
    "log_prob_of_labels",
    "negative_entropy",
]

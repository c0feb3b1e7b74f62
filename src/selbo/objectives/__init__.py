"""What is trained: one criterion a file, each a sum of named terms over the data set."""

from selbo.objectives.cross_entropy import CrossEntropy
from selbo.objectives.elbo import ELBO
from selbo.objectives.entropy_minimisation import EntropyMinimisation
from selbo.objectives.evidential import Evidential
from selbo.objectives.expectation_regularisation import ExpectationRegularisation
from selbo.objectives.label_priority import LabelCheck, labels_first
from selbo.objectives.label_shift import LabelShift
from selbo.objectives.label_smoothing import LabelSmoothing
from selbo.objectives.objective import Objective, Terms, View, log_prob_of_labels
from selbo.objectives.predictive import evaluation_mode
from selbo.objectives.summary_elbo import SummaryELBO

__all__ = [
    "ELBO",
    "CrossEntropy",
    "EntropyMinimisation",
    "Evidential",
    "ExpectationRegularisation",
    "LabelCheck",
    "LabelShift",
    "LabelSmoothing",
    "Objective",
    "SummaryELBO",
    "Terms",
    "View",
    "evaluation_mode",
    "labels_first",
    "log_prob_of_labels",
]

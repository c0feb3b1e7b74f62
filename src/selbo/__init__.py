"""Neural classifiers that know what their predictions should look like: the Summary ELBO for PyTorch."""

import importlib
from typing import TYPE_CHECKING, Any

from selbo.version import __version__ as __version__

if TYPE_CHECKING:
    from selbo import metrics, models
    from selbo.estimator import BeliefCalibrator as BeliefCalibrator
    from selbo.estimator import SummaryClassifier as SummaryClassifier
    from selbo.evaluation import calibrate, decide
    from selbo.evaluation.belief_calibration import calibrate_groups, calibrate_to_belief
    from selbo.evaluation.check_belief import check_belief
    from selbo.evaluation.check_groups import check_groups
    from selbo.evaluation.choose import choose_by_belief, choose_scale
    from selbo.evaluation.combine import belief_weights
    from selbo.evaluation.evaluate import evaluate, evaluate_ood
    from selbo.evaluation.label_shift import estimate_fractions
    from selbo.evaluation.monitor import BeliefMonitor
    from selbo.evaluation.predict import Prediction, predict
    from selbo.nn import mean_network, to_bayesian
    from selbo.objectives import (
        ELBO,
        CrossEntropy,
        Evidential,
        LabelShift,
        LabelSmoothing,
        SummaryELBO,
        labels_first,
    )
    from selbo.posteriors import SGHMC, SGLD, NaturalGradient, SampleSet, forward_samples, hmc, kl_divergence
    from selbo.summary.beliefs import Belief, Beta, Dirichlet, Empirical, Masses, Uniform
    from selbo.summary.elicitation import elicit_concentration, expect
    from selbo.summary.estimation import belief_from_labels, belief_from_samples
    from selbo.summary.grouped import GroupedSummary
    from selbo.summary.likelihood import SummaryLikelihood, dirichlet_process_log_prob
    from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition, ScoreBins
    from selbo.training.fit import fit

__all__ = [
    "ELBO",
    "SGHMC",
    "SGLD",
    "Belief",
    "BeliefMonitor",
    "Beta",
    "ClassRegions",
    "ConfidenceBins",
    "CornerShells",
    "CrossEntropy",
    "Dirichlet",
    "Empirical",
    "Evidential",
    "GroupedSummary",
    "LabelShift",
    "LabelSmoothing",
    "Masses",
    "NaturalGradient",
    "Partition",
    "Prediction",
    "SampleSet",
    "ScoreBins",
    "SummaryELBO",
    "SummaryLikelihood",
    "Uniform",
    "belief_from_labels",
    "belief_from_samples",
    "belief_weights",
    "calibrate",
    "calibrate_groups",
    "calibrate_to_belief",
    "check_belief",
    "check_groups",
    "choose_by_belief",
    "choose_scale",
    "decide",
    "dirichlet_process_log_prob",
    "elicit_concentration",
    "estimate_fractions",
    "evaluate",
    "evaluate_ood",
    "expect",
    "fit",
    "forward_samples",
    "hmc",
    "kl_divergence",
    "labels_first",
    "mean_network",
    "metrics",
    "models",
    "predict",
    "to_bayesian",
]

_HOMES = {
    "selbo.estimator": ("BeliefCalibrator", "SummaryClassifier"),  # need scikit-learn, and are not in `__all__`
    "selbo.evaluation": ("calibrate", "decide"),
    "selbo.evaluation.belief_calibration": ("calibrate_groups", "calibrate_to_belief"),
    "selbo.evaluation.check_belief": ("check_belief",),
    "selbo.evaluation.check_groups": ("check_groups",),
    "selbo.evaluation.choose": ("choose_by_belief", "choose_scale"),
    "selbo.evaluation.combine": ("belief_weights",),
    "selbo.evaluation.evaluate": ("evaluate", "evaluate_ood"),
    "selbo.evaluation.label_shift": ("estimate_fractions",),
    "selbo.evaluation.monitor": ("BeliefMonitor",),
    "selbo.evaluation.predict": ("Prediction", "predict"),
    "selbo.nn": ("mean_network", "to_bayesian"),
    "selbo.objectives": (
        "ELBO",
        "CrossEntropy",
        "Evidential",
        "LabelShift",
        "LabelSmoothing",
        "SummaryELBO",
        "labels_first",
    ),
    "selbo.posteriors": ("SGHMC", "SGLD", "NaturalGradient", "SampleSet", "forward_samples", "hmc", "kl_divergence"),
    "selbo.summary.beliefs": ("Belief", "Beta", "Dirichlet", "Empirical", "Masses", "Uniform"),
    "selbo.summary.elicitation": ("elicit_concentration", "expect"),
    "selbo.summary.estimation": ("belief_from_labels", "belief_from_samples"),
    "selbo.summary.grouped": ("GroupedSummary",),
    "selbo.summary.likelihood": ("SummaryLikelihood", "dirichlet_process_log_prob"),
    "selbo.summary.partitions": ("ClassRegions", "ConfidenceBins", "CornerShells", "Partition", "ScoreBins"),
    "selbo.training.fit": ("fit",),
}
"""Modules of the public names, as above. Names are imported on first use: importing torch takes seconds, and
``selbo --help`` does not need it."""


if not TYPE_CHECKING:  # with it, a type checker would accept names that do not exist

    def __getattr__(name: str) -> Any:
        """A public name, or a module of the package."""
        for home, names in _HOMES.items():
            if name in names:
                value = globals()[name] = getattr(importlib.import_module(home), name)
                return value
        if not name.startswith("_"):
            try:
                return importlib.import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{__name__}.{name}":
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

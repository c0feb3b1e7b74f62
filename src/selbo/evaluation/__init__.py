"""What a trained network predicts, and what its predictions are worth."""

from selbo.evaluation import calibrate, label_shift
from selbo.evaluation.check_belief import Verdict, check_belief
from selbo.evaluation.evaluate import evaluate, evaluate_ood

__all__ = ["Verdict", "calibrate", "check_belief", "evaluate", "evaluate_ood", "label_shift"]

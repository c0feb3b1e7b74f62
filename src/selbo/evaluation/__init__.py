"""What a trained network predicts, and what its predictions are worth."""

from selbo.evaluation import calibrate, shift
from selbo.evaluation.contradiction import Verdict, check_belief
from selbo.evaluation.evaluate import evaluate, evaluate_ood

__all__ = ["Verdict", "calibrate", "check_belief", "evaluate", "evaluate_ood", "shift"]

"""What a trained network predicts, and what its predictions are worth."""

from selbo.evaluation import calibrate
from selbo.evaluation.evaluate import evaluate, evaluate_ood

__all__ = ["calibrate", "evaluate", "evaluate_ood"]

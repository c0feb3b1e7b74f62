"""A run of `selbo.fit` in MLflow: its terms as metrics, the predictions beside the belief as metrics and pictures.

    pip install 'selbo[mlflow,plot,sklearn]'
    python examples/mlflow_run.py --out demo

Scikit-learn's digits, a Bayesian network. Whatever `fit` records goes to the run; the histogram is that of the
validation set. Set MLFLOW_TRACKING_URI to write to a server; without it the run is in a folder.
"""

import argparse
import os
from pathlib import Path

import mlflow
import torch
from sklearn.datasets import load_digits

import selbo
from selbo.integrations.mlflow import MLflowLogger
from selbo.integrations.summary_logger import SummaryLogger
from selbo.plots import summary_against_histogram


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the run, if there is no server")
    parser.add_argument("--smoke", action="store_true", help="a few steps, to see that everything works")
    arguments = parser.parse_args()
    if "MLFLOW_TRACKING_URI" not in os.environ:
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # newer releases want a database or a server
        mlflow.set_tracking_uri((arguments.out / "mlruns").absolute().as_uri())

    generator = torch.Generator().manual_seed(0)
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    images, order = images.float() / 16, torch.randperm(1797, generator=generator)
    train, val = ((images[part], labels[part]) for part in (order[:500], order[500:1000]))

    network = selbo.to_bayesian(selbo.models.MLP((64, 64, 10), generator=generator), prior_std=0.2)
    partition = selbo.ConfidenceBins([0.5, 0.7, 0.9, 0.97], num_classes=10)
    summary = selbo.SummaryLikelihood(partition, selbo.expect(accuracy=0.93, num_classes=10), concentration=200.0)
    objective = selbo.SummaryELBO(summary, num_data=500, kl_weight=0.1)

    with mlflow.start_run() as run:
        logger = SummaryLogger(
            MLflowLogger(),
            model=network,
            summary=summary,
            inputs=val[0],
            draw=lambda seen: summary_against_histogram(partition, seen.s0, {"validation set": seen.histogram}),
        )
        steps = 20 if arguments.smoke else 1000
        selbo.fit(network, objective, train, val, steps=steps, log_every=steps // 4, callbacks=[logger])
    metrics = mlflow.get_run(run.info.run_id).data.metrics
    for name in ("log_likelihood", "kl", "log_summary", "summary_distance", "val_nll"):
        print(f"{name:17}{metrics[name]:12.3f}")
    pictures = mlflow.MlflowClient().list_artifacts(run.info.run_id, "summary/figure")
    print(f"and {len(pictures)} pictures, in the run {run.info.run_id}")


if __name__ == "__main__":
    main()

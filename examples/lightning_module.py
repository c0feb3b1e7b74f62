"""The summary term in a LightningModule: one attribute, one line of `training_step`, one callback.

    pip install 'selbo[lightning,sklearn]'
    python examples/lightning_module.py --out demo

Tumours, benign or malignant, from scikit-learn. Assume that 95 % of them can be classified, and that 63 % are
benign. The callback logs how far the predictions are from that, and under DDP makes one histogram of all processes.
"""

import argparse
from pathlib import Path

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import selbo
from selbo.integrations.lightning import SummaryCallback


class Tumours(lightning.LightningModule):
    """An ordinary module, but for the two lines that say `summary`."""

    def __init__(self, summary: selbo.SummaryLikelihood, num_data: int) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 2))
        self.summary = summary  # as an attribute, so that the callback finds it
        self.num_data = num_data  # of the whole training set, however many processes share it

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        inputs, labels = batch
        log_probs = self.network(inputs).log_softmax(-1)
        loss = nn.functional.nll_loss(log_probs, labels)
        weight = selbo.labels_first(self.global_step, self.trainer.estimated_stepping_batches)
        loss = loss - weight * self.summary(log_probs) / self.num_data  # the one line
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        inputs, labels = batch
        self.log("val_nll", nn.functional.cross_entropy(self.network(inputs), labels), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the log")
    parser.add_argument("--smoke", action="store_true", help="two epochs, to see that everything works")
    arguments = parser.parse_args()
    lightning.seed_everything(0, verbose=False)
    inputs, labels = (torch.tensor(array) for array in load_breast_cancer(return_X_y=True))
    inputs = ((inputs - inputs.mean(0)) / inputs.std(0)).float()
    order = torch.randperm(len(inputs))
    train, val = (TensorDataset(inputs[part], labels[part]) for part in (order[:200], order[200:]))

    belief = selbo.expect(accuracy=0.95, class_fractions=[0.37, 0.63])  # malignant, benign
    summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), belief, concentration=100.0)
    trainer = lightning.Trainer(
        max_epochs=2 if arguments.smoke else 100,
        accelerator="cpu",
        callbacks=[SummaryCallback()],
        logger=CSVLogger(arguments.out),  # or TensorBoardLogger, MLFlowLogger: they get the histogram too
        log_every_n_steps=2,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loaders = DataLoader(train, batch_size=100, shuffle=True, drop_last=True), DataLoader(val, batch_size=len(val))
    trainer.fit(Tumours(summary, num_data=len(train)), *loaders)
    for name in ("val_nll", "log_summary", "summary_distance"):
        print(f"{name:17}{float(trainer.callback_metrics[name]):9.3f}")


if __name__ == "__main__":
    main()

"""A LightningModule with the one line: its loss, what the callback logs, and that nothing is left behind."""

import csv
import logging

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from unit.training.toys import blobs, network, summary

import selbo
from selbo.integrations import lightning as adapter
from selbo.integrations.lightning import SummaryCallback
from selbo.random import generator_for

pytestmark = [
    pytest.mark.filterwarnings("default"),  # those of Lightning are its own
    pytest.mark.usefixtures("_global_states"),
]
N, BATCH = 24, 8


def test_lightning_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(adapter, "Callback", object)
    with pytest.raises(ValueError, match=r"needs the package lightning: pip install 'selbo\[lightning\]'"):
        SummaryCallback()


@pytest.fixture
def pl():
    found = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return found


@pytest.fixture
def plain(pl):
    class Plain(pl.LightningModule):
        def __init__(self, term):
            super().__init__()
            self.network, self.summary = network(dropout=0.0), term
            self.passes = []

        def training_step(self, batch, batch_idx):
            inputs, labels = batch
            log_probs = self.network(inputs).log_softmax(-1)
            value = self.summary(log_probs)
            self.passes.append((log_probs.detach(), value.item()))
            return nn.functional.nll_loss(log_probs, labels) - value / N

        def validation_step(self, batch, batch_idx):
            self.summary(self.network(batch[0]).log_softmax(-1))  # the histogram of training must not hear of it

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Plain


def trainer(pl, folder, callbacks, **settings):
    settings = {"max_epochs": 2, "log_every_n_steps": 2, "logger": False, **settings}
    quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(accelerator="cpu", default_root_dir=folder, callbacks=callbacks, **quiet, **settings)


def loader():
    return DataLoader(TensorDataset(*blobs(N)), batch_size=BATCH)


def test_numbers_and_histograms_are_those_of_the_batches(pl, plain, logger, tmp_path):
    module, log = plain(summary()), pl.loggers.CSVLogger(tmp_path)
    run = trainer(
        pl, tmp_path, [SummaryCallback(loggers=[logger], draw=lambda snapshot: snapshot.distance)], logger=log
    )
    run.fit(module, loader(), loader())
    assert [step for _, _, step in logger.histograms] == [2, 4, 6]
    for (name, snapshot, _), start in zip(logger.histograms, (0, 2, 4), strict=True):
        both = torch.cat([log_probs for log_probs, _ in module.passes[start : start + 2]])
        assert name == "summary"
        torch.testing.assert_close(snapshot.histogram, module.summary.histogram(both).double(), rtol=1e-6, atol=0)
        assert snapshot.log_summary == pytest.approx(sum(value for _, value in module.passes[start : start + 2]) / 2)
    assert [each for _, each, _ in logger.figures] == [snapshot.distance for _, snapshot, _ in logger.histograms]
    last = logger.histograms[-1][1]
    assert float(run.callback_metrics["log_summary"]) == pytest.approx(last.log_summary)
    with open(f"{log.log_dir}/metrics.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get("log_summary")]
    assert [int(row["step"]) for row in rows] == [2, 4, 6]
    assert float(rows[-1]["summary_distance"]) == pytest.approx(last.distance)


def test_what_is_left_is_logged_at_the_end(pl, plain, logger, tmp_path):
    module = plain(summary())
    trainer(pl, tmp_path, [SummaryCallback(every_n_steps=4, loggers=[logger])]).fit(module, loader())
    assert [step for _, _, step in logger.histograms] == [4, 6]


def test_the_callback_changes_no_weight_and_leaves_no_trace(pl, plain, tmp_path):
    with_it, without = plain(summary(ema_decay=0.5)), plain(summary(ema_decay=0.5))
    trainer(pl, tmp_path, [SummaryCallback()]).fit(with_it, loader(), loader())
    trainer(pl, tmp_path, []).fit(without, loader(), loader())
    assert with_it.summary.reductions == []
    assert not with_it.summary._forward_hooks
    for one, other in zip(with_it.state_dict().values(), without.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_an_error_leaves_no_trace_either(pl, plain, tmp_path):
    module = plain(summary())
    module.training_step = lambda batch, batch_idx: 1 / 0
    with pytest.raises(ZeroDivisionError):
        trainer(pl, tmp_path, [SummaryCallback()]).fit(module, loader())
    assert module.summary.reductions == []


def test_a_module_without_a_summary_is_told_so(pl, plain, tmp_path):
    module = plain(summary())
    module.summary = None
    with pytest.raises(ValueError, match=r"`module` must hold a selbo\.SummaryLikelihood"):
        trainer(pl, tmp_path, [SummaryCallback()]).fit(module, loader())


def test_a_bayesian_network_with_its_objective(pl, logger, tmp_path):
    class Bayesian(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.network, self.objective = network(bayesian=True), selbo.SummaryELBO(summary(), num_data=N)
            self.values = []

        def training_step(self, batch, batch_idx):
            noise = generator_for(0, "noise", self.global_step, device=self.device)  # the same in all processes
            terms = self.objective(
                self.network,
                *batch,
                num_samples=3,
                generator=noise,
                step=self.global_step,
                steps=self.trainer.estimated_stepping_batches,
            )
            self.values.append(terms.log_summary.item())
            self.log_dict(terms.named())
            return terms.loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

    module = Bayesian()
    before = selbo.kl_divergence(module.network).item()
    run = trainer(pl, tmp_path, [SummaryCallback(every_n_steps=6, loggers=[logger])])
    run.fit(module, loader())
    assert logger.histograms[0][1].log_summary == pytest.approx(sum(module.values) / 6, rel=1e-5)
    assert selbo.kl_divergence(module.network).item() != before
    assert {"loss", "kl", "log_summary", "log_likelihood", "summary_distance"} <= set(run.callback_metrics)


def test_lightnings_own_loggers_get_the_histogram(pl, plain, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = pl.loggers.TensorBoardLogger(tmp_path)
    trainer(pl, tmp_path, [SummaryCallback()], logger=log).fit(plain(summary()), loader())
    events = EventAccumulator(log.log_dir, size_guidance={"histograms": 0}).Reload()
    assert [each.step for each in events.Histograms("summary/predictions")] == [2, 4, 6]
    assert len(events.Histograms("summary/belief")[0].histogram_value.bucket) == summary().partition.num_regions
    assert "log_summary" in events.Tags()["scalars"]


def test_a_run_of_mlflow_gets_it_too(pl, plain, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", before)  # which mlflow sets itself; so that it is forgotten at the end
    try:
        log = pl.loggers.MLFlowLogger(tracking_uri=(tmp_path / "runs").as_uri())
        trainer(pl, tmp_path, [SummaryCallback()], logger=log).fit(plain(summary()), loader())
        metrics = log.experiment.get_run(log.run_id).data.metrics
    finally:
        mlflow.set_tracking_uri(before)
    assert {"log_summary", "summary_distance", "summary/predictions/region_0", "summary/belief/region_6"} <= set(
        metrics
    )

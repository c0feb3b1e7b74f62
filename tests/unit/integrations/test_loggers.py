"""TensorBoard and MLflow hold the numbers they were given; read back with their own readers."""

import sys

import pytest
import torch

from selbo.integrations.loggers import log_snapshot
from selbo.integrations.monitor import Snapshot

LOPSIDED = Snapshot(
    torch.tensor([0.6, 0.1, 0.3], dtype=torch.float64), torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64), -3.0
)


def figure(_seen):
    from matplotlib.figure import Figure

    made = Figure(figsize=(1, 1))
    made.subplots()
    return made


# --- TensorBoard ---


class Writer:
    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments, **named: self.calls.append((name, arguments, named))


def test_bars_stand_over_the_numbers_of_the_regions():
    from selbo.integrations.tensorboard import TensorBoardLogger

    writer = Writer()
    logger = TensorBoardLogger(writer)
    log_snapshot([logger], "summary", LOPSIDED, 7)
    (kind, (name,), bars), (_, (other,), belief) = writer.calls
    assert (kind, name, other) == ("add_histogram_raw", "summary/predictions", "summary/belief")
    assert (bars["min"], bars["max"], bars["num"], bars["global_step"]) == (0.0, 3.0, 1.0, 7)
    assert bars["bucket_limits"] == [1.0, 2.0, 3.0]
    assert bars["bucket_counts"] == [0.6, 0.1, 0.3]
    assert bars["sum"] == pytest.approx(0.6 * 0.5 + 0.1 * 1.5 + 0.3 * 2.5)
    assert bars["sum_squares"] == pytest.approx(0.6 * 0.25 + 0.1 * 2.25 + 0.3 * 6.25)
    assert belief["bucket_counts"] == [0.2, 0.5, 0.3]


@pytest.mark.filterwarnings("default")  # those of tensorboard are its own
def test_tensorboard_reads_it_back(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from selbo.integrations.tensorboard import TensorBoardLogger

    logger = TensorBoardLogger(tmp_path / "logger")
    logger.scalars({"loss": 0.5, "kl": 2.0}, 3)
    log_snapshot([logger], "summary", LOPSIDED, 3, draw=figure)
    logger.close()
    events = EventAccumulator(str(tmp_path / "logger")).Reload()
    assert set(events.Tags()["scalars"]) == {"loss", "kl"}
    assert (events.Scalars("kl")[0].step, events.Scalars("kl")[0].value) == (3, 2.0)
    assert set(events.Tags()["histograms"]) == {"summary/predictions", "summary/belief"}
    found = events.Histograms("summary/predictions")[0]
    assert found.step == 3
    assert list(found.histogram_value.bucket) == [0.6, 0.1, 0.3]
    assert events.Tags()["images"] == ["summary/figure"]


def test_tensorboard_that_is_missing_is_named(monkeypatch, tmp_path):
    from selbo.integrations.tensorboard import TensorBoardLogger

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"needs the package tensorboard: pip install 'selbo\[tensorboard\]'"):
        TensorBoardLogger(tmp_path)


# --- MLflow ---


@pytest.fixture
def client(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return MlflowClient(tracking_uri=(tmp_path / "runs").as_uri())


def history(client, run_id, name):
    return [(each.step, each.value) for each in client.get_metric_history(run_id, name)]


@pytest.mark.filterwarnings("default")  # those of mlflow are its own
@pytest.mark.usefixtures("_global_states")
def test_mlflow_reads_it_back(client):
    from selbo.integrations.mlflow import MLflowLogger

    run_id = client.create_run(client.create_experiment("tests")).info.run_id
    logger = MLflowLogger(run_id, client=client)
    for step in (3, 6):
        logger.scalars({"loss": step / 2, "kl": 2}, step)
        log_snapshot([logger], "summary", LOPSIDED, step, draw=figure)
    assert history(client, run_id, "loss") == [(3, 1.5), (6, 3.0)]
    assert history(client, run_id, "summary/predictions/region_0") == [(3, 0.6), (6, 0.6)]
    assert history(client, run_id, "summary/belief/region_1") == [(3, 0.5)]  # it does not change
    assert set(client.get_run(run_id).data.metrics) == {
        *("loss", "kl"),
        *(f"summary/{which}/region_{r}" for which in ("predictions", "belief") for r in range(3)),
    }
    pictures = [each.path for each in client.list_artifacts(run_id, "summary/figure")]
    assert pictures == ["summary/figure/00000003.png", "summary/figure/00000006.png"]


@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("_global_states")
def test_without_a_run_mlflow_says_what_to_do(client):
    from selbo.integrations.mlflow import MLflowLogger

    with pytest.raises(ValueError, match=r"`run_id` must be given if no run is active: call mlflow\.start_run"):
        MLflowLogger(client=client)


def test_mlflow_that_is_missing_is_named(monkeypatch):
    from selbo.integrations.mlflow import MLflowLogger

    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ValueError, match=r"needs the package mlflow: pip install 'selbo\[mlflow\]'"):
        MLflowLogger("run")

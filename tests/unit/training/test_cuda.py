"""Training on CUDA: the captured step does what eager steps do, resumes, and falls back with a warning."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from selbo.evaluation.predict import predict
from selbo.models import MLP, ConvNet
from selbo.nn import to_bayesian
from selbo.objectives import ELBO, CrossEntropy, Evidential, SummaryELBO
from selbo.posteriors import Ensemble, MeanFieldEnsemble, NaturalGradientEnsemble
from selbo.summary.beliefs import Masses, Uniform
from selbo.summary.grouped import GroupedSummary
from selbo.summary.likelihood import SummaryLikelihood
from selbo.summary.partitions import ClassRegions, ConfidenceBins
from selbo.training import Checkpoint, FitResult, Validation, fit
from selbo.training.engines import GraphEngine

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

WIDTHS = (6, 16, 3)


@pytest.fixture(autouse=True)
def _what_the_compiler_does_besides() -> Any:
    """It warns, and draws from Python's random numbers."""
    state = random.getstate()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch")
        yield
    random.setstate(state)


def data(rows: int = 300) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(rows, WIDTHS[0], generator=torch.Generator().manual_seed(5))
    return inputs, inputs[:, :3].argmax(1)


def mlp() -> MLP:
    return MLP(WIDTHS, generator=torch.Generator().manual_seed(6))


def summary() -> SummaryLikelihood:
    return SummaryLikelihood(ConfidenceBins([0.5, 0.8], num_classes=3), Uniform(), concentration=50.0, ema_decay=0.5)


def train(model: torch.nn.Module, objective: Any, **options: Any) -> FitResult:
    settings = {"steps": 60, "batch_size": 64, "device": "cuda", "seed": 3, "callbacks": (), **options}
    return fit(model, objective, data(), **settings)


def test_captured_steps_are_the_eager_ones() -> None:
    captured, eager = mlp(), mlp()
    one = train(captured, CrossEntropy(300, summary()), schedule="cosine")
    two = train(eager, CrossEntropy(300, summary()), schedule="cosine", engine="eager")
    assert "CUDA graph" in one.engine
    assert two.engine.startswith("eager")
    torch.testing.assert_close(one.curve, two.curve, rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(captured.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("form", ["dirichlet", "multinomial", "counts"])
@pytest.mark.parametrize("ema_decay", [None, 0.9])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("engine", ["cudagraph", "compile+cudagraph"])
def test_captured_steps_without_labels_are_the_eager_ones(
    form: str, ema_decay: float, classes: int, engine: str
) -> None:
    """Beliefs about 100 groups of three, in batches of 20 of them."""
    inputs, groups = data()[0], torch.arange(300) % 100
    fractions = torch.rand(100, classes, generator=torch.Generator().manual_seed(0)) + 0.1
    fractions = fractions / fractions.sum(-1, keepdim=True)
    networks, curves = [], []
    for kind in (engine, "eager"):
        network = MLP((WIDTHS[0], 16, classes), generator=torch.Generator().manual_seed(6))
        towns = GroupedSummary(ClassRegions(classes), fractions, 20.0, form=form, ema_decay=ema_decay)
        result = fit(
            network,
            CrossEntropy(300, towns),
            inputs,
            groups=groups,
            rows_per_group=3,
            steps=30,
            batch_size=60,
            device="cuda",
            seed=3,
            callbacks=(),
            engine=kind,
        )
        assert ("CUDA graph" in result.engine) == (kind != "eager")
        networks.append(network)
        curves.append(result.curve)
    torch.testing.assert_close(*curves, rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(*(each.parameters() for each in networks), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_every_step_has_a_batch_and_noise_of_its_own() -> None:
    """With a learning rate of almost zero, the terms of two steps differ by batch and noise alone."""
    result = train(to_bayesian(mlp(), init_std=0.3), ELBO(300), learning_rate=1e-12)
    losses = result.curve[5:, 1]
    assert len(losses.unique()) > 0.95 * len(losses)  # two may agree by chance


@pytest.mark.parametrize("num_samples", [1, 2])
@pytest.mark.parametrize("engine", ["compile+cudagraph", "cudagraph", "eager"])
def test_a_natural_gradient_learns_in_every_engine(engine: str, num_samples: int) -> None:
    network = mlp()
    result = train(
        network,
        CrossEntropy(300, summary()),
        posterior="natural_gradient",
        engine=engine,
        steps=300,
        num_samples=num_samples,
        precision="bf16",
    )
    assert ("CUDA graph" in result.engine) == (engine != "eager")
    inputs, labels = data()
    generator = torch.Generator("cuda").manual_seed(0)
    prediction = predict(result.posterior, inputs, 16, generator=generator)
    assert (prediction.classes.cpu() == labels).double().mean() > 0.8
    assert len(result.curve[5:, 1].unique()) > 285, "every step has noise of its own"  # two may agree by chance
    precisions = torch.cat([each.reshape(-1) for each in result.posterior.precisions().values()])
    assert precisions.isfinite().all()
    assert len(precisions.unique()) > 1


@pytest.mark.parametrize("summary_of", ["members", "mixture"])
@pytest.mark.parametrize("engine", ["cudagraph", "compile+cudagraph"])
def test_captured_steps_of_an_ensemble_are_the_eager_ones(engine: str, summary_of: str) -> None:
    ensembles = [Ensemble(lambda: MLP(WIDTHS), 3, summary_of=summary_of) for _ in range(2)]
    one, two = (
        train(each, CrossEntropy(300, summary()), schedule="cosine", engine=kind)
        for each, kind in zip(ensembles, (engine, "eager"), strict=True)
    )
    assert "CUDA graph" in one.engine
    torch.testing.assert_close(one.curve, two.curve, rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(*(each.network.parameters() for each in ensembles), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("engine", ["cudagraph", "eager"])
def test_bayesian_ensembles_learn_in_a_graph(engine: str) -> None:
    inputs, labels = data()
    mean_field = MeanFieldEnsemble(lambda: to_bayesian(MLP(WIDTHS)), 3)
    natural_gradient = NaturalGradientEnsemble(lambda: MLP(WIDTHS), 3, num_data=300)
    for ensemble, objective in (
        (mean_field, SummaryELBO(summary(), 300, kl_weight=0.01)),
        (natural_gradient, CrossEntropy(300, summary())),
    ):
        result = train(ensemble, objective, engine=engine, steps=300, learning_rate=None)
        assert ("CUDA graph" in result.engine) == (engine != "eager")
        prediction = predict(ensemble, inputs, 8, generator=torch.Generator("cuda").manual_seed(0))
        assert (prediction.classes.cpu() == labels).double().mean() > 0.8
        first, second = (ensemble.member(number) for number in (0, 1))
        answers = [
            predict(each, inputs, 8, generator=torch.Generator("cuda").manual_seed(0)).probs for each in (first, second)
        ]
        assert (answers[0] - answers[1]).abs().max() > 1e-3, "members differ"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_convolutional_network_resumes(tmp_path: Path, precision: str) -> None:
    images = torch.randn(200, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    labels = (images.mean((1, 2, 3)) > 0).long()

    def network() -> torch.nn.Module:
        return to_bayesian(ConvNet(2, generator=torch.Generator().manual_seed(2)))

    def stop(record: dict[str, Any]) -> None:
        if record["step"] == 20:
            raise KeyboardInterrupt

    options: dict[str, Any] = {
        "steps": 40,
        "batch_size": 50,
        "device": "cuda",
        "log_every": 10,
        "precision": precision,
        "augment": "crop_and_flip",
        "checkpoint": Checkpoint(tmp_path / "run", every=0),
        "val": (images[:50], labels[:50]),
        "validation": Validation(select="best"),
        "num_samples": 2,
    }
    bins = SummaryLikelihood(ConfidenceBins([0.6, 0.9], num_classes=2), Uniform(), concentration=20.0)
    with pytest.raises(KeyboardInterrupt):
        fit(network(), SummaryELBO(bins, 200, kl_weight=0.01), (images, labels), callbacks=[stop], **options)
    model = network()
    result = fit(model, SummaryELBO(bins, 200, kl_weight=0.01), (images, labels), **options)
    assert 0 < result.resumed_from <= 20
    assert result.curve.isfinite().all()
    assert result.curve[-5:, 1].mean() > result.curve[:5, 1].mean(), "the likelihood of the labels has grown"
    generator = torch.Generator("cuda").manual_seed(0)
    found = predict(model, images.cuda(), 4, precision=precision, generator=generator)
    assert found.probs.isfinite().all()


@pytest.mark.parametrize("engine", ["cudagraph", "compile+cudagraph"])
def test_evidence_is_annealed_in_the_graph_as_in_eager_steps(engine: str) -> None:
    objective = Evidential(300, annealing_steps=40, annealing_every=8)
    one = train(mlp(), objective, engine=engine)
    two = train(mlp(), objective, engine="eager")
    assert "CUDA graph" in one.engine
    torch.testing.assert_close(one.curve, two.curve, rtol=1e-3, atol=1e-4)
    loss, log_likelihood, kl = one.curve[:, 0], one.curve[:, 1], one.curve[:, 2]
    stairs = torch.tensor([min(1, (step // 8) / 5) for step in range(60)], dtype=one.curve.dtype)
    torch.testing.assert_close(loss, (stairs * kl - log_likelihood) / 300, rtol=1e-4, atol=1e-5)


def test_unlabelled_inputs_in_the_graph() -> None:
    objective = SummaryELBO(summary(), 300, kl_weight=0.01, summary_warmup=10)
    result = train(to_bayesian(mlp()), objective, unlabelled=data(128)[0])
    assert "CUDA graph" in result.engine
    assert result.curve.isfinite().all()


@pytest.mark.parametrize("engine", ["cudagraph", "compile+cudagraph"])
def test_several_summaries_in_the_graph(engine: str) -> None:
    masses = Masses([0.5, 0.3, 0.2])
    named = SummaryLikelihood(ClassRegions(3), masses, concentration=30.0, name="fractions", ema_decay=0.9)
    objective = SummaryELBO([summary(), named], 300, kl_weight=0.01, summary_warmup=10)
    result = train(to_bayesian(mlp()), objective, unlabelled={"fractions": data(128)[0]}, engine=engine)
    assert "CUDA graph" in result.engine
    assert result.curve.isfinite().all()
    torch.testing.assert_close(result.curve[:, 3], result.curve[:, 4:].sum(1), rtol=1e-4, atol=1e-3)


def test_a_step_that_cannot_be_captured_runs_eagerly_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: GraphEngine) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(GraphEngine, "_capture", refuse)
    captured, eager = mlp(), mlp()
    with pytest.warns(UserWarning, match="runs eagerly"):
        one = train(captured, CrossEntropy(300), engine="cudagraph")
    two = train(eager, CrossEntropy(300), engine="eager")
    assert one.engine.startswith("eager")
    torch.testing.assert_close(one.curve, two.curve, rtol=1e-3, atol=1e-4)


class FailsInCapture(CrossEntropy):
    """Does what must not be done while a graph is captured, as the third-party code of a user may."""

    def forward(self, *args: Any, **options: Any) -> Any:
        if torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
        return super().forward(*args, **options)


def test_after_a_failed_capture_the_process_is_as_good_as_before() -> None:
    with pytest.warns(UserWarning, match="runs eagerly"):
        broken = train(mlp(), FailsInCapture(300), engine="cudagraph")
    assert broken.engine.startswith("eager")
    assert torch.randn(3, device="cuda").isfinite().all(), "torch's own generator draws again"
    again = train(to_bayesian(mlp()), ELBO(300, kl_weight=0.01), engine="cudagraph")
    assert "CUDA graph" in again.engine
    assert again.curve.isfinite().all()


def test_a_forgotten_graph_does_not_disturb_the_capture_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    step = GraphEngine._step
    monkeypatch.setattr(GraphEngine, "_step", lambda self: (step(self), [[] for _ in range(100_000)])[0])
    for _ in range(2):  # the many lists make Python collect, in the second run the graph of the first
        result = train(mlp(), CrossEntropy(300), engine="cudagraph")
        assert "CUDA graph" in result.engine

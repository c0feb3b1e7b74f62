"""A partition and a belief that are defined here, with the members of the contract alone, work everywhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from unit.training.toys import CLASSES, blobs, network

import selbo
from selbo.elicit import answer
from selbo.plots import SimplexPanel, belief_on_simplex, summary_against_histogram
from selbo.plots.labels import region_axis
from selbo.plots.simplex import boundaries
from selbo.summary._dirichlet import sampled_masses

EDGES = (0.2, 0.7)


class MarginBins(selbo.Partition):
    """Bins of the margin between the two largest probabilities: the four members that a partition must have."""

    def __init__(self, edges: Sequence[float], num_classes: int = CLASSES) -> None:
        super().__init__()
        self.edges = tuple(edges)
        self.num_classes, self.num_regions = num_classes, len(edges) + 1

    def memberships(self, log_probs: Tensor) -> Tensor:
        crossings = 20 * (self.margins(log_probs) - log_probs.new_tensor(self.edges))
        return torch.softmax(nn.functional.pad(crossings.cumsum(-1), (1, 0)), dim=-1)

    def assign(self, log_probs: Tensor) -> Tensor:
        return (self.margins(log_probs) > log_probs.new_tensor(self.edges)).sum(-1)

    def margins(self, log_probs: Tensor) -> Tensor:
        first, second = log_probs.exp().topk(2, dim=-1).values.unbind(-1)
        return (first - second).unsqueeze(-1)


class NamedMarginBins(MarginBins):
    """The same, with more that is known of them."""

    def confidence_bounds(self) -> np.ndarray:
        """With a margin m, the largest probability lies between (1 + m (K - 1)) / K and (1 + m) / 2."""
        ends, count = np.array([0.0, *self.edges, 1.0]), self.num_classes
        return np.stack([(1 + ends[:-1] * (count - 1)) / count, (1 + ends[1:]) / 2], -1)

    def scale(self, names: Sequence[str] | None = None) -> selbo.summary.partitions.Scale:
        ends = ("0", *(f"{edge:g}" for edge in self.edges), "1")
        return selbo.summary.partitions.Scale("margin of the two largest probabilities", "margin", "margin", ends)


class Mixture(selbo.Belief):
    """Two beliefs, one for a share of the cases: the one method that a belief must have."""

    def __init__(self, first: selbo.Belief, second: selbo.Belief, share: float = 0.5) -> None:
        self.first, self.second, self.share = first, second, share

    def masses(self, partition: selbo.Partition) -> Tensor:
        return self.share * self.first.masses(partition) + (1 - self.share) * self.second.masses(partition)


def hidden(partition: selbo.Partition) -> selbo.Partition:
    """A partition of the library of which nothing is known but the contract."""

    class Hidden(selbo.Partition):
        num_classes, num_regions = partition.num_classes, partition.num_regions

        def memberships(self, log_probs: Tensor) -> Tensor:
            return partition.memberships(log_probs)

        def assign(self, log_probs: Tensor) -> Tensor:
            return partition.assign(log_probs)

    return Hidden()


def mixture() -> Mixture:
    return Mixture(selbo.Uniform(), selbo.Masses([0.2, 0.3, 0.5]), share=0.25)


def predictions(*shape: int, scale: float = 3.0) -> Tensor:
    logits = scale * torch.randn(*shape, CLASSES, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return logits.log_softmax(-1)


BELIEFS = {
    "Uniform": selbo.Uniform(),
    "Dirichlet": selbo.Dirichlet([0.4, 0.9, 1.7]),
    "expect": selbo.expect(accuracy=0.8, class_fractions=[0.5, 0.3, 0.2]),
    "Masses": selbo.Masses([0.1, 0.3, 0.6]),
    "uncertain Masses": selbo.Masses([0.1, 0.3, 0.6], uncertainty=0.05),
    "Empirical": selbo.Empirical(predictions(100)),
    "Mixture": mixture(),
}


# --- masses ---


@pytest.mark.parametrize("belief", [selbo.Beta(0.4, 1.3), selbo.Beta(1e-2, 3e-2), selbo.Beta(2, 5)], ids=repr)
def test_masses_of_margins_of_two_classes_are_those_of_confidence(belief: selbo.Beta) -> None:
    """The margin |p_0 - p_1| is more than m where the largest probability is more than (1 + m) / 2."""
    exact = belief.masses(selbo.ConfidenceBins([(1 + edge) / 2 for edge in EDGES], 2))
    np.testing.assert_allclose(belief.masses(MarginBins(EDGES, 2)), exact, atol=5 * 2e-4)


@pytest.mark.parametrize(
    ("partition", "alpha", "error"),
    [
        (selbo.CornerShells(3), [0.05, 0.1, 0.2], 2e-4),
        (selbo.ConfidenceBins([0.5, 0.8], 3), [30.0, 20.0, 5.0], 2e-4),
        (selbo.ClassRegions(3), [1e-4, 2e-3, 1e-3], 2e-4),
        (selbo.ConfidenceBins([0.5, 0.8], 10), [0.1 * (k + 1) for k in range(10)], 1e-3),
        (selbo.ScoreBins([0.99, 0.999]), [1.0, 1e3], 2e-4),
    ],
    ids=lambda case: type(case).__name__,
)
def test_sampled_masses_are_as_exact_as_they_say(
    partition: selbo.Partition, alpha: Sequence[float], error: float
) -> None:
    """Within five standard errors of the exact masses, and those within what is stated."""
    exact = partition.dirichlet_masses(alpha)
    found, errors = sampled_masses(np.array(alpha), hidden(partition)._count)
    assert (np.abs(found - exact) < 5 * errors).all()
    assert errors.max() <= error


def test_sampled_masses_are_always_the_same() -> None:
    first, second = (MarginBins(EDGES).dirichlet_masses([0.5, 1.0, 2.0]) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_mass_that_cannot_be_sampled_is_refused() -> None:
    message = r"^Dirichlet\(\[50, 50, 50\]\) puts a mass of about 0 on region 2 of MarginBins, which can only .*Masses"
    with pytest.raises(ValueError, match=message):
        selbo.Dirichlet([50.0, 50.0, 50.0]).masses(MarginBins(EDGES))
    with pytest.raises(ValueError, match=r"^`alpha` must hold 3 numbers, one per class, but got 2"):
        MarginBins(EDGES).dirichlet_masses([1.0, 2.0])


# --- the likelihood, and what it says ---


@pytest.mark.parametrize("partition", [MarginBins(EDGES), NamedMarginBins(EDGES)], ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("belief", BELIEFS.values(), ids=BELIEFS)
def test_every_belief(partition: selbo.Partition, belief: selbo.Belief) -> None:
    summary = selbo.SummaryLikelihood(partition, belief, concentration=50.0)
    assert summary.s0.dtype == torch.float64
    assert summary.s0.min() > 0
    assert summary.s0.sum().item() == pytest.approx(1)
    log_probs = predictions(2, 16).requires_grad_()
    value = summary(log_probs)
    value.sum().backward()
    assert value.shape == (2,)
    assert log_probs.grad.isfinite().all()
    assert log_probs.grad.abs().max() > 0
    said = str(summary.describe(num_inputs=100))
    assert said.startswith(f"{belief!r}, with the weight of 50 observations")
    assert len(said.splitlines()) > 1
    json.dumps([partition.to_dict(), belief.to_dict()])


def test_predictions_of_every_kind_are_fit_for_a_partition() -> None:
    """Certain ones, and those of half precision, reach `memberships` finite and in single precision."""
    summary = selbo.SummaryLikelihood(MarginBins(EDGES), selbo.Masses([0.2, 0.3, 0.5]))
    certain = torch.tensor([[1.0, 0.0, 0.0], [0.4, 0.3, 0.3]], dtype=torch.bfloat16).log().requires_grad_()
    summary(certain).backward()
    assert certain.grad.isfinite().all()
    assert summary.histogram(certain).dtype == torch.float32
    with pytest.raises(ValueError, match="must have 3 classes in its last dimension"):
        summary(torch.zeros(4, 2))


def test_bounds_that_a_partition_knows_are_claimed() -> None:
    claims = selbo.SummaryLikelihood(NamedMarginBins(EDGES), selbo.Masses([0.2, 0.3, 0.5])).describe()
    low, high = np.array([0.2, 0.3, 0.5]) @ NamedMarginBins(EDGES).confidence_bounds()
    assert claims.accuracy == pytest.approx((low, high))
    assert claims.confidence[0] == pytest.approx((0.8, 1.0, 0.5))
    unknown = selbo.SummaryLikelihood(MarginBins(EDGES), selbo.Masses([0.2, 0.3, 0.5])).describe()
    assert (unknown.accuracy, unknown.fractions, unknown.confidence) == (None, None, ())


def test_labels_are_checked_against_what_a_partition_knows() -> None:
    summary = selbo.SummaryLikelihood(NamedMarginBins(EDGES), BELIEFS["expect"])
    labels = torch.arange(200) % 2
    log_probs = (5 * nn.functional.one_hot(labels, 3).double()).log_softmax(-1)
    found = selbo.check_belief(summary, labels, log_probs=log_probs)
    assert [each.about for each in found] == ["accuracy"]  # these regions say nothing about classes
    assert found[0].claimed == pytest.approx((0.8,))


# --- mistakes ---


def test_shapes_that_are_wrong_are_one_sentence() -> None:
    class Short(MarginBins):
        def memberships(self, log_probs: Tensor) -> Tensor:
            return super().memberships(log_probs)[..., 1:]

    class Long(Mixture):
        def masses(self, partition: selbo.Partition) -> Tensor:
            return torch.full((7,), 1 / 7)

    class Heavy(Mixture):
        def masses(self, partition: selbo.Partition) -> Tensor:
            return 2 * super().masses(partition)

    summary = selbo.SummaryLikelihood(Short(EDGES), selbo.Masses([0.2, 0.3, 0.5]))
    with pytest.raises(ValueError, match=r"^`memberships` of Short must have shape \(4, 3\), but got \(4, 2\)$"):
        summary(predictions(4))
    parts = (selbo.Masses([0.2, 0.3, 0.5]), selbo.Masses([0.5, 0.3, 0.2]))
    with pytest.raises(ValueError, match=r"^`masses` of Long must have shape \(3,\), one per region, but got \(7,\)$"):
        selbo.SummaryLikelihood(MarginBins(EDGES), Long(*parts))
    with pytest.raises(ValueError, match=r"^`masses` must lie on the simplex"):
        selbo.SummaryLikelihood(MarginBins(EDGES), Heavy(*parts))


@pytest.mark.parametrize("base", [selbo.Partition, selbo.Belief])
def test_what_must_be_defined_is_asked_for(base: type) -> None:
    with pytest.raises(TypeError, match=r"abstract method.*m(asses|emberships)"):
        type("Empty", (base,), {})()


# --- pictures ---


def test_an_unknown_partition_has_numbered_regions() -> None:
    assert MarginBins(EDGES).region_labels() == ["region 0", "region 1", "region 2"]
    axis = region_axis(NamedMarginBins(EDGES))
    assert (axis.labels, axis.title) == (["0", "0.2", "0.7", "1"], "margin of the two largest probabilities")
    assert NamedMarginBins(EDGES).region_labels() == ["0–0.2", "0.2–0.7", "0.7–1"]
    assert NamedMarginBins(EDGES).spoken_labels()[0] == "margin 0 to 0.2"


@pytest.mark.no_cover  # measuring would take longer than drawing
@pytest.mark.parametrize("partition", [MarginBins(EDGES), NamedMarginBins(EDGES)], ids=lambda p: type(p).__name__)
def test_figures(partition: selbo.Partition) -> None:
    masses = mixture().masses(partition)
    figure = summary_against_histogram(partition, masses, [0.5, 0.3, 0.2])
    shown = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert shown == region_axis(partition).labels
    panels = [SimplexPanel("", belief, partition) for belief in (BELIEFS["Dirichlet"], mixture(), BELIEFS["Empirical"])]
    figure = belief_on_simplex(panels)
    notes = [text.get_text() for text in figure.axes[1].texts]
    assert f"{partition.region_labels()[0]}: {100 * masses[0]:.1f} %" in notes[0]
    figure.canvas.draw()


def test_lines_that_a_partition_does_not_know_are_traced() -> None:
    """Every traced point lies where the margin is an edge; together they are as long as the lines are."""
    lines = boundaries(MarginBins(EDGES))
    top = np.sort(lines, axis=-1)
    margins = top[..., -1] - top[..., -2]
    assert np.abs(margins[..., None] - EDGES).min(-1).max() < 1e-9
    # the margin is p_k - max of the others: per corner two lines, from the side to the bisector
    ends = [np.array([[(1 + m) / 2, (1 - m) / 2, 0], [(1 + 2 * m) / 3, (1 - m) / 3, (1 - m) / 3]]) for m in EDGES]
    whole = 6 * sum(np.linalg.norm(np.diff(each, axis=0)) for each in ends)
    assert np.linalg.norm(np.diff(lines, axis=1), axis=-1).sum() == pytest.approx(whole, rel=1e-3)
    np.testing.assert_allclose(boundaries(MarginBins(EDGES, 2))[:, 0, 1], [0.15, 0.4, 0.6, 0.85], atol=1e-9)


def test_traced_lines_of_three_regions_meet() -> None:
    lines = boundaries(hidden(selbo.ClassRegions(3)))
    exact = boundaries(selbo.ClassRegions(3))
    length, whole = (np.linalg.norm(np.diff(each, axis=1), axis=-1).sum() for each in (lines, exact))
    assert length == pytest.approx(whole, rel=1e-2)
    two = np.sort(lines, axis=-1)
    assert (two[..., -1] - two[..., -2]).max() < 1 / 100


# --- training ---


@pytest.mark.no_cover
def test_a_run_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    data = blobs(64)

    def run(edges: Sequence[float] = EDGES, belief: selbo.Belief | None = None, **options: object) -> selbo.FitResult:
        summary = selbo.SummaryLikelihood(MarginBins(edges), belief or mixture(), 20.0)
        objective = selbo.CrossEntropy(64, summary)
        settings = {"steps": 12, "batch_size": 16, "seed": 2, "callbacks": (), **options}
        return selbo.fit(network(seed=1), objective, data, **settings)

    def stop(record: dict[str, object]) -> None:
        if record["step"] == 8:
            raise KeyboardInterrupt

    path = selbo.training.Checkpoint(tmp_path / "run", every=0)
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=path, log_every=4, callbacks=[stop])
    result = run(checkpoint=path, log_every=4)
    assert 0 < result.resumed_from < 12
    assert torch.equal(result.curve, run(log_every=4).curve)

    with pytest.raises(ValueError, match=r"another run: its .*regions: arguments: edges is \[0\.2, 0\.7\], here"):
        run(edges=(0.2, 0.6), belief=selbo.Masses(mixture().masses(MarginBins(EDGES)).tolist()), checkpoint=path)
    with pytest.raises(ValueError, match=r"another run: its .*belief: type is '.*\.Mixture', here it is 'selbo\.Mass"):
        run(belief=selbo.Masses(mixture().masses(MarginBins(EDGES)).tolist()), checkpoint=path)


@pytest.mark.no_cover
def test_the_estimator() -> None:
    pytest.importorskip("sklearn")
    inputs, labels = (each.numpy() for each in blobs(80))
    classifier = selbo.SummaryClassifier(
        belief=mixture(), partition=NamedMarginBins(EDGES), steps=20, num_samples=4, random_state=0
    ).fit(inputs, labels)
    assert type(classifier.summary_.partition) is NamedMarginBins
    assert np.allclose(classifier.predict_proba(inputs).sum(-1), 1)


# --- the elicitation page ---


@pytest.mark.parametrize("belief", [None, mixture()], ids=["stated", "own"])
@pytest.mark.parametrize("partition", [MarginBins(EDGES), NamedMarginBins(EDGES, 2), MarginBins(EDGES, 5)], ids=repr)
def test_the_elicitation_page(partition: selbo.Partition, belief: selbo.Belief | None) -> None:
    classes = partition.num_classes
    state = answer.read_state({"classes": classes, "regions": "classes", "accuracy": 0.7, "num_labels": 40})
    shown = answer.shown(state, partition=partition, belief=belief)
    json.dumps(shown)
    assert len(shown["s0"]) == 3
    assert shown["labels"] == partition.spoken_labels()
    assert not any("predicted class only" in text for text in shown["claims"])

    assert shown["copies"]["command"]["text"] == ""
    text = shown["copies"]["python"]["text"]
    assert f"import {__name__}\n" in text
    made: dict[str, object] = {}
    exec(text, made)
    summary = made["summary"]
    assert type(summary.partition) is type(partition)
    assert (summary.partition.edges, summary.partition.num_classes) == (EDGES, classes)
    np.testing.assert_array_equal(summary.s0, shown["s0"])
    classifier = shown["copies"]["sklearn"]["text"]
    assert f"partition={__name__}.{type(partition).__name__}([0.2, 0.7]" in classifier


def test_arguments_that_were_not_kept_are_left_to_the_user() -> None:
    class Forgetful(selbo.Belief):
        def __init__(self, strength: float, mood: str = "good") -> None:
            pass

        def masses(self, partition: selbo.Partition) -> Tensor:
            return torch.full((partition.num_regions,), 1 / partition.num_regions, dtype=torch.float64)

    shown = answer.shown(answer.read_state({}), belief=Forgetful(3.0))
    assert "Forgetful(strength=...)\n" in shown["copies"]["python"]["text"]
    assert repr(Forgetful(3.0)) == "Forgetful()"
    assert repr(mixture()) == "Mixture(first=Uniform(), second=Masses([0.2, 0.3, 0.5]), share=0.25)"

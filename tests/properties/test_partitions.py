"""What holds for every partition and every prediction."""

from __future__ import annotations

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from properties.strategies import (
    class_regions,
    confidence_bins,
    corner_shells,
    log_probs,
    partitions,
    score_bins,
    simplex,
)
from torch import Tensor

import selbo
from selbo.summary._edges import top_log_odds

F64 = (torch.float64,)
SHARP = (1e1, 1e4, 1e8, 1e14)
MARGIN = 0.05


@given(st.data())
def test_memberships_lie_on_the_simplex(data: st.DataObject) -> None:
    partition = data.draw(partitions())
    given_probs = data.draw(log_probs(partition.num_classes))
    shares = partition.memberships(given_probs)
    assert shares.shape == (*given_probs.shape[:-1], partition.num_regions)
    assert (shares >= 0).all()
    torch.testing.assert_close(shares.sum(-1), torch.ones_like(shares[..., 0]), rtol=0, atol=1e-5)
    regions = partition.assign(given_probs)
    assert (regions >= 0).all()
    assert (regions < partition.num_regions).all()


@given(st.data())
def test_the_order_of_a_batch_does_not_change_its_histogram(data: st.DataObject) -> None:
    partition = data.draw(partitions())
    given_probs = data.draw(log_probs(partition.num_classes))
    size = given_probs.shape[-2]
    order = torch.tensor(data.draw(st.permutations(range(size))))
    weights = torch.tensor(data.draw(st.lists(st.floats(0, 10), min_size=size, max_size=size)), dtype=torch.float64)
    summary = selbo.SummaryLikelihood(partition, selbo.Masses([1 / partition.num_regions] * partition.num_regions))
    found = summary.histogram(given_probs[..., order, :], weights[order])
    torch.testing.assert_close(found, summary.histogram(given_probs, weights), rtol=1e-5, atol=1e-6)
    assert torch.equal(partition.assign(given_probs[..., order, :]), partition.assign(given_probs)[..., order])


# --- classes permuted: regions permuted accordingly ---


def permutation(data: st.DataObject, num_classes: int) -> Tensor:
    return torch.tensor(data.draw(st.permutations(range(num_classes))))


def assert_close(one: Tensor, two: Tensor) -> None:
    torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-9)


@given(st.data())
def test_class_regions_follow_a_permutation_of_classes(data: st.DataObject) -> None:
    partition = data.draw(class_regions())
    given_probs, order = (
        data.draw(log_probs(partition.num_classes, dtypes=F64)),
        permutation(data, partition.num_classes),
    )
    assert_close(partition.memberships(given_probs[..., order]), partition.memberships(given_probs)[..., order])
    belief = data.draw(simplex(partition.num_classes, smallest=0.05))
    permuted = selbo.Dirichlet([belief[k] for k in order.tolist()]).masses(partition)
    assert_close(permuted, selbo.Dirichlet(belief).masses(partition)[order])


@given(st.data())
def test_corner_shells_follow_a_permutation_of_classes(data: st.DataObject) -> None:
    partition = data.draw(corner_shells(gap=0.01))
    classes = partition.num_classes
    given_probs, order = data.draw(log_probs(classes, dtypes=F64)), permutation(data, classes)
    shells = (partition.num_regions - 1) // classes
    regions = torch.cat([*[shell * classes + order for shell in range(shells)], torch.tensor([shells * classes])])
    assert_close(partition.memberships(given_probs[..., order]), partition.memberships(given_probs)[..., regions])
    belief = data.draw(simplex(classes, smallest=0.05))
    permuted = selbo.Dirichlet([belief[k] for k in order.tolist()]).masses(partition)
    assert_close(permuted, selbo.Dirichlet(belief).masses(partition)[regions])


@given(st.data())
def test_confidence_bins_ignore_a_permutation_of_classes(data: st.DataObject) -> None:
    partition = data.draw(confidence_bins())
    given_probs, order = (
        data.draw(log_probs(partition.num_classes, dtypes=F64)),
        permutation(data, partition.num_classes),
    )
    assert_close(partition.memberships(given_probs[..., order]), partition.memberships(given_probs))
    assert torch.equal(partition.assign(given_probs[..., order]), partition.assign(given_probs))


@given(st.data())
def test_score_bins_are_mirrored_with_the_two_classes(data: st.DataObject) -> None:
    edges = [each / 64 for each in sorted(data.draw(st.sets(st.integers(1, 63), min_size=1, max_size=5)))]  # exact
    space, factor = data.draw(st.sampled_from(["logit", "probability"])), data.draw(st.floats(0.1, 1e4))
    given_probs = data.draw(log_probs(2, dtypes=F64))
    bins = selbo.ScoreBins(edges, space=space, slope_factor=factor)
    mirrored = selbo.ScoreBins([1 - edge for edge in reversed(edges)], space=space, slope_factor=factor)
    assert_close(mirrored.memberships(given_probs.flip(-1)), bins.memberships(given_probs).flip(-1))
    a, b = data.draw(st.floats(0.05, 20)), data.draw(st.floats(0.05, 20))
    assert_close(selbo.Beta(b, a).masses(mirrored), selbo.Beta(a, b).masses(bins).flip(-1))


# --- soft approaches hard ---


def gaps_to_hard(soft: list[Tensor], regions: Tensor) -> list[float]:
    hard = torch.nn.functional.one_hot(regions, soft[0].shape[-1]).double()
    return [(each - hard).abs().amax().item() for each in soft]


@given(st.data())
def test_memberships_become_hard_as_edges_sharpen(data: st.DataObject) -> None:
    """For predictions that are not on an edge."""
    partition = data.draw(st.one_of(score_bins(gap=0.01), corner_shells(gap=0.01), confidence_bins(gap=0.01)))
    given_probs = data.draw(log_probs(partition.num_classes, dtypes=F64, scale=12.0, impossible=False))
    scores = (
        given_probs[..., 1] - given_probs[..., 0]
        if isinstance(partition, selbo.ScoreBins)
        else top_log_odds(given_probs)
    )
    assume(((scores.unsqueeze(-1) - partition.edges.positions).abs() > MARGIN).all())
    soft = []
    for factor in SHARP:
        partition.set_slope_factor(factor)
        soft.append(partition.memberships(given_probs))
    gaps = gaps_to_hard(soft, partition.assign(given_probs))
    assert gaps == sorted(gaps, reverse=True) or max(gaps) < 1e-12, gaps
    assert gaps[-1] < 1e-9, gaps


@given(st.data())
def test_class_regions_become_hard_as_the_temperature_falls(data: st.DataObject) -> None:
    """For predictions without a tie."""
    classes = data.draw(st.integers(2, 6))
    some = data.draw(log_probs(classes, dtypes=F64))
    regions = some.argmax(-1)
    given_probs = (some + MARGIN * torch.nn.functional.one_hot(regions, classes)).log_softmax(-1)
    soft = [selbo.ClassRegions(classes, temperature).memberships(given_probs) for temperature in (10.0, 1.0, 0.1, 1e-3)]
    assert torch.equal(selbo.ClassRegions(classes).assign(given_probs), regions)
    gaps = gaps_to_hard(soft, regions)
    assert gaps == sorted(gaps, reverse=True), gaps
    assert gaps[-1] < 1e-9, gaps

"""Regions and memberships: on the simplex for any input, right at the edges, hard in the limit."""

import copy
import math

import mpmath
import pytest
import torch

import selbo
from selbo.summary import _edges

PARTITIONS = {
    "bins, logit": lambda: selbo.ScoreBins([0.1, 0.35, 0.9]),
    "bins, probability": lambda: selbo.ScoreBins([0.1, 0.35, 0.9], space="probability"),
    "bins, one edge": lambda: selbo.ScoreBins([0.3]),
    "bins, far edges": lambda: selbo.ScoreBins([1e-9, 1e-3, 1 - 1e-3, 1 - 1e-9]),
    "bins, steep": lambda: selbo.ScoreBins([0.2, 0.7], space="probability", slope_factor=100.0),
    "shells": lambda: selbo.CornerShells(4),
    "shells, probability": lambda: selbo.CornerShells(3, (0.6, 0.7, 0.99), space="probability"),
    "shells, one half": lambda: selbo.CornerShells(5, (0.5,)),
    "shells, two classes": lambda: selbo.CornerShells(2, (0.5, 0.9)),
    "classes": lambda: selbo.ClassRegions(4),
    "classes, cold": lambda: selbo.ClassRegions(3, temperature=0.05),
    "confidence": lambda: selbo.ConfidenceBins([0.3, 0.5, 0.95], num_classes=6),
    "confidence, probability": lambda: selbo.ConfidenceBins([0.4, 0.8], num_classes=3, space="probability"),
}


@pytest.fixture(params=PARTITIONS.values(), ids=PARTITIONS.keys())
def partition(request):
    return request.param()


def random_log_probs(*shape, seed=0, scale=3.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).log_softmax(-1).to(dtype)


def binary(*scores, dtype=torch.float64):
    scores = torch.tensor(scores, dtype=dtype)
    return torch.stack([torch.log1p(-scores), scores.log()], -1)


class TestEveryPartition:
    def test_rows_lie_on_the_simplex(self, partition):
        for scale in (0.1, 3.0, 50.0):
            memberships = partition.memberships(random_log_probs(2, 40, partition.num_classes, scale=scale))
            assert memberships.shape == (2, 40, partition.num_regions)
            assert (memberships >= 0).all()
            torch.testing.assert_close(memberships.sum(-1), torch.ones(2, 40, dtype=torch.float64), atol=1e-14, rtol=0)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_extreme_predictions_are_finite_and_have_finite_gradients(self, partition, dtype):
        count = partition.num_classes
        logits = torch.cat([100 * torch.eye(count), -100 * torch.eye(count), torch.zeros(1, count)])
        certain = torch.full((count, count), -math.inf).fill_diagonal_(0.0)  # probabilities of exactly 0 and 1
        log_probs = torch.cat([logits.log_softmax(-1), certain]).to(dtype).requires_grad_()
        memberships = partition.memberships(log_probs)
        assert memberships.dtype == torch.promote_types(dtype, torch.float32)
        torch.testing.assert_close(memberships.sum(-1), torch.ones(len(log_probs)).to(memberships), atol=1e-6, rtol=0)
        (memberships * torch.arange(1.0, partition.num_regions + 1)).sum().backward()
        assert log_probs.grad.isfinite().all()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("space", ["logit", "probability"])
    @pytest.mark.parametrize("edges", [[5e-324], [5e-324, 1e-323, 0.5], [0.2, math.nextafter(0.2, 1)], [1 - 2**-53]])
    def test_edges_without_room_between_them_give_finite_memberships(self, edges, space, dtype):
        scores = torch.tensor([0.0, edges[0], 0.2, 0.5, 1.0], dtype=torch.float64)
        log_probs = torch.stack([torch.log1p(-scores), scores.log()], -1).to(dtype).requires_grad_()
        memberships = selbo.ScoreBins(edges, space=space).memberships(log_probs)
        torch.testing.assert_close(memberships.sum(-1), torch.ones(5, dtype=dtype))
        memberships[..., 0].sum().backward()
        assert log_probs.grad.isfinite().all()

    def test_the_largest_membership_is_the_region_at_any_slope(self, partition):
        log_probs = random_log_probs(500, partition.num_classes)
        regions = partition.assign(log_probs)
        assert regions.dtype == torch.long
        assert len(regions.unique()) > 1
        for factor in (0.5, 7.0, 500.0):
            if not isinstance(partition, selbo.ClassRegions):
                partition.set_slope_factor(factor)
            assert torch.equal(partition.memberships(log_probs).argmax(-1), regions)

    def test_memberships_become_hard_as_the_slope_grows(self, partition):
        log_probs = random_log_probs(300, partition.num_classes, seed=1)
        hard = torch.nn.functional.one_hot(partition.assign(log_probs), partition.num_regions).double()
        gaps = []
        for factor in (5.0, 50.0, 5e3, 5e6):
            if isinstance(partition, selbo.ClassRegions):
                partition = selbo.ClassRegions(partition.num_classes, temperature=1 / factor)
            else:
                partition.set_slope_factor(factor)
            gaps.append((partition.memberships(log_probs) - hard).abs().mean().item())
        assert gaps == sorted(gaps, reverse=True)
        assert gaps[-1] < 1e-3

    def test_gradients_agree_with_finite_differences(self, partition):
        logits = torch.randn(6, partition.num_classes, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        logits.requires_grad_()
        if getattr(partition, "edges", None) is not None and partition.edges.slope_factor == 100.0:
            partition.set_slope_factor(5.0)  # a slope of 500 needs steps smaller than gradcheck's
        assert torch.autograd.gradcheck(lambda x: partition.memberships(x.log_softmax(-1)), (logits,))

    def test_float32_is_close_to_float64(self, partition):
        log_probs = random_log_probs(100, partition.num_classes)
        if getattr(partition, "edges", None) is not None and partition.edges.values[0] < 1e-6:
            pytest.skip("edges of 1e-9 are beyond float32")
        torch.testing.assert_close(
            partition.memberships(log_probs.float()).double(), partition.memberships(log_probs), atol=1e-4, rtol=0
        )

    def test_leading_dimensions_and_vmap_agree_with_a_loop(self, partition):
        log_probs = random_log_probs(3, 2, 5, partition.num_classes)
        whole = partition.memberships(log_probs)
        looped = torch.stack([torch.stack([partition.memberships(b) for b in a]) for a in log_probs])
        torch.testing.assert_close(whole, looped, rtol=1e-12, atol=0)
        torch.testing.assert_close(torch.func.vmap(partition.memberships)(log_probs), whole, rtol=1e-12, atol=0)
        assert torch.equal(partition(log_probs), whole)

    def test_deepcopy_and_state_dict_round_trip(self, partition):
        log_probs = random_log_probs(8, partition.num_classes)
        twin = copy.deepcopy(partition)
        if not isinstance(partition, selbo.ClassRegions):
            partition.set_slope_factor(2.5)
        twin.load_state_dict(partition.state_dict())
        assert torch.equal(twin.memberships(log_probs), partition.memberships(log_probs))

    def test_printing_says_what_it_is(self, partition):
        assert str(partition.num_regions) in repr(partition) or str(partition.num_classes) in repr(partition)


class TestLogOdds:
    def test_against_many_digits(self):
        """Also where 1 - p has no digits left in float32: log(1 - p) comes from the other classes."""
        logits = torch.tensor([[0.0, 30.0, -2.0], [1.0, 1.5, 0.0], [-60.0, 40.0, 3.0]], dtype=torch.float32)
        got = _edges.log_odds(logits.log_softmax(-1))
        with mpmath.workdps(60):
            for row, values in zip(logits.tolist(), got.tolist(), strict=True):
                weights = [mpmath.e ** mpmath.mpf(x) for x in row]
                for k, value in enumerate(values):
                    expected = mpmath.log(weights[k] / (sum(weights) - weights[k]))
                    assert value == pytest.approx(float(expected), rel=3e-6, abs=3e-6)

    def test_of_the_predicted_class(self):
        log_probs = random_log_probs(50, 5)
        torch.testing.assert_close(_edges.top_log_odds(log_probs), _edges.log_odds(log_probs).amax(-1))

    def test_two_classes_are_one_number(self):
        log_probs = random_log_probs(50, 2)
        torch.testing.assert_close(_edges.log_odds(log_probs)[:, 1], _edges.binary_log_odds(log_probs))


class TestScoreBins:
    def test_a_saturated_score_counts_in_full(self):
        bins = selbo.ScoreBins.equal(10)
        log_probs = torch.tensor([[0.0, -100.0], [-100.0, 0.0]])
        memberships = bins.memberships(log_probs)
        assert memberships[0, 0] > 1 - 1e-6
        assert memberships[1, -1] > 1 - 1e-6

    def test_an_edge_is_shared_by_its_neighbours_and_belongs_to_the_lower(self):
        bins = selbo.ScoreBins([0.25, 0.5, 0.75])
        at_edge = bins.memberships(binary(0.5))[0]
        torch.testing.assert_close(at_edge[1], at_edge[2])
        assert at_edge[1:3].sum() > 0.99
        assert bins.assign(binary(0.5)).item() == 1

    def test_slopes_follow_the_narrower_neighbour(self):
        """The derivative of log(upper / lower) at an edge is slope_factor / width, plus one in logit space."""
        edges = [0.05, 0.10, 0.90]
        positions = [math.log(e / (1 - e)) for e in edges]
        for space, widths in (
            ("probability", [0.05, 0.05, 0.10]),
            ("logit", [positions[1] - positions[0], positions[1] - positions[0], positions[2] - positions[1]]),
        ):
            bins = selbo.ScoreBins(edges, space=space, slope_factor=6.0)
            for j, (edge, width) in enumerate(zip(edges, widths, strict=True)):
                z = torch.tensor([positions[j]], dtype=torch.float64, requires_grad=True)
                memberships = bins.memberships(torch.stack([torch.sigmoid(-z), torch.sigmoid(z)], -1).log())[0]
                (slope,) = torch.autograd.grad((memberships[j + 1] / memberships[j]).log(), z)
                expected = 6.0 / width * edge * (1 - edge) if space == "probability" else 6.0 / width + 1
                assert slope.item() == pytest.approx(expected, rel=1e-6)

    def test_far_out_the_pull_fades_like_the_gradient_of_the_cross_entropy(self):
        """Their ratio stays the same from a logit of 25 to one of 45: the summary is felt however saturated a score."""
        bins = selbo.ScoreBins([0.1, 0.9])
        ratios = []
        for logit in (25.0, 35.0, 45.0):
            z = torch.tensor([logit], dtype=torch.float64, requires_grad=True)
            log_probs = torch.stack([torch.nn.functional.logsigmoid(-z), torch.nn.functional.logsigmoid(z)], -1)
            (pull,) = torch.autograd.grad(bins.memberships(log_probs)[0, 1], z, retain_graph=True)
            (data,) = torch.autograd.grad(log_probs[0, 1], z)
            ratios.append((pull / data).item())
        assert ratios == pytest.approx([ratios[0]] * 3, rel=1e-2)
        assert ratios[0] < 0

    def test_resolution_near_one_is_real(self):
        """1 - 1e-9 and 1 - 1e-11 are the same number in float32; as log-probabilities they are not."""
        bins = selbo.ScoreBins([0.5, 1 - 1e-10])
        z = torch.tensor([math.log(1e9), math.log(1e11)], dtype=torch.float32)
        log_probs = torch.stack([torch.nn.functional.logsigmoid(-z), torch.nn.functional.logsigmoid(z)], -1)
        assert bins.assign(log_probs).tolist() == [1, 2]
        assert (bins.memberships(log_probs).amax(-1) > 0.9).all()

    def test_probability_space_against_the_formula_by_hand(self):
        """Odds of neighbours are exp(slope (p - e)), here with edges .3 and .5, so widths .2 (and .3, .5 outside)."""
        bins = selbo.ScoreBins([0.3, 0.5], space="probability", slope_factor=4.0)
        first, second = math.exp(20 * (0.4 - 0.3)), math.exp(20 * (0.4 - 0.5))
        weights = [1.0, first, first * second]
        expected = [w / sum(weights) for w in weights]
        assert bins.memberships(binary(0.4))[0].tolist() == pytest.approx(expected, rel=1e-12)

    def test_logit_space_against_the_formula_by_hand(self):
        bins = selbo.ScoreBins([0.3], slope_factor=4.0)  # a lone edge has width one
        distance = math.log(0.4 / 0.6) - math.log(0.3 / 0.7)
        odds = math.exp(distance + 2 * math.tanh(2 * distance))  # slope 4 = height 2 times 2
        assert bins.memberships(binary(0.4))[0].tolist() == pytest.approx(
            [1 / (1 + odds), odds / (1 + odds)], rel=1e-12
        )

    def test_the_height_of_a_step_is_the_root_of_the_slope_factor(self):
        """Far above two edges, .2 and .6, the odds of neighbours are exp(distance + height), whatever the widths."""
        bins = selbo.ScoreBins([0.2, 0.6], slope_factor=9.0)
        z = torch.tensor([math.log(0.6 / 0.4) + 12.0], dtype=torch.float64)
        log_probs = torch.stack([torch.nn.functional.logsigmoid(-z), torch.nn.functional.logsigmoid(z)], -1)
        low, middle, high = bins.memberships(log_probs)[0].log().tolist()
        assert high - middle == pytest.approx(12 + 3, rel=1e-9)
        assert middle - low == pytest.approx(12 + math.log(6) + 3, rel=1e-9)

    def test_the_default_slope_factor_depends_on_the_space(self):
        for space, factor in (("logit", 15.0), ("probability", 5.0)):
            for partition in (
                selbo.ScoreBins([0.2, 0.6], space=space),
                selbo.ScoreBins.equal(4, space=space),
                selbo.CornerShells(3, space=space),
                selbo.ConfidenceBins([0.5, 0.9], 3, space=space),
            ):
                assert partition.edges.slope_factor.item() == factor

    def test_a_prediction_in_the_middle_of_a_bin_leaks_little(self):
        """About two per cent to each neighbour, even where all bins are equally narrow."""
        positions = [-1.0, -0.5, 0.0, 0.5, 1.0]
        bins = selbo.ScoreBins([1 / (1 + math.exp(-z)) for z in positions])
        z = torch.tensor([-0.25, 0.25], dtype=torch.float64)
        log_probs = torch.stack([torch.nn.functional.logsigmoid(-z), torch.nn.functional.logsigmoid(z)], -1)
        memberships = bins.memberships(log_probs)
        assert (memberships.amax(-1) > 0.94).all()

    def test_equal(self):
        assert selbo.ScoreBins.equal(10).edges.values == tuple(i / 10 for i in range(1, 10))
        assert selbo.ScoreBins.equal(2, space="probability").edges.space == "probability"


class TestCornerShells:
    def test_regions_stand_in_the_order_of_the_contract(self):
        shells = selbo.CornerShells(3, thresholds=(0.85, 0.95))
        rows = {
            0: [0.97, 0.02, 0.01],
            1: [0.02, 0.97, 0.01],
            2: [0.01, 0.02, 0.97],
            3: [0.90, 0.05, 0.05],
            4: [0.05, 0.90, 0.05],
            5: [0.05, 0.05, 0.90],
            6: [0.80, 0.10, 0.10],
        }
        probs = torch.tensor(list(rows.values()), dtype=torch.float64)
        assert shells.num_regions == 7
        assert shells.assign(probs.log()).tolist() == list(rows)
        assert shells.memberships(probs.log()).argmax(-1).tolist() == list(rows)

    def test_relabelling_classes_permutes_regions(self):
        shells = selbo.CornerShells(4, (0.6, 0.9))
        order = torch.tensor([2, 0, 3, 1])
        log_probs = random_log_probs(30, 4)
        regions = torch.cat([order, 4 + order, torch.tensor([8])])
        torch.testing.assert_close(shells.memberships(log_probs[:, order]), shells.memberships(log_probs)[:, regions])

    def test_the_leak_into_other_corners_is_bounded_in_the_number_of_classes(self):
        """For a uniform prediction all corners together get a few per cent, however many classes."""
        for count in (3, 30, 3000):
            shells = selbo.CornerShells(count, (0.5, 0.9))
            uniform = torch.full((1, count), -math.log(count), dtype=torch.float64)
            assert shells.memberships(uniform)[0, -1] > 0.95

    @pytest.mark.parametrize("space", ["logit", "probability"])
    @pytest.mark.parametrize("thresholds", [(0.7,), (0.6, 0.8, 0.95)])
    def test_memberships_and_gradients_are_those_of_a_loop_over_the_definition(self, thresholds, space):
        """A shell weighs exp(sum of the crossings up to it) against the centre; ties and near-certain rows included."""
        shells = selbo.CornerShells(5, thresholds, space=space)
        rows = [torch.tensor([0.5, 0.5, -9.0, -9.0, -9.0]), torch.tensor([12.0, 0.0, 0.0, 1.0, -3.0]), torch.zeros(5)]
        log_probs = torch.cat([random_log_probs(20, 5), torch.stack(rows).double().log_softmax(-1)]).requires_grad_()
        weights = torch.linspace(-1.0, 2.0, shells.num_regions, dtype=torch.float64)
        edges, factor = shells.edges, shells.edges.slope_factor
        expected = []
        for row in log_probs:
            exponents = torch.zeros(len(thresholds), 5, dtype=torch.float64).tolist()
            for k in range(5):
                rest = torch.stack([row[j] for j in range(5) if j != k]).exp().sum()
                climb = 0.0
                for t, threshold in enumerate(thresholds):
                    odds = row[k] - rest.log()
                    distance = odds - math.log(threshold / (1 - threshold))
                    step = factor.sqrt() * torch.tanh(factor.sqrt() / edges.widths[t] * distance)
                    by_probability = factor / edges.widths[t] * (torch.sigmoid(odds) - threshold)
                    climb = climb + (distance + step if space == "logit" else by_probability)
                    exponents[-1 - t][k] = climb.exp()
            parts = torch.stack([each for shell in exponents for each in shell] + [torch.ones((), dtype=torch.float64)])
            expected.append(parts / parts.sum())
        (want,) = torch.autograd.grad((torch.stack(expected) @ weights).sum(), log_probs)
        got = shells.memberships(log_probs)
        torch.testing.assert_close(got, torch.stack(expected), rtol=1e-10, atol=1e-14)
        # a loop over the definition has a gradient by each log-probability; ours uses that probabilities sum to one
        tangent = want - log_probs.exp() * want.sum(-1, keepdim=True)
        (grad,) = torch.autograd.grad((got @ weights).sum(), log_probs)
        torch.testing.assert_close(grad - log_probs.exp() * grad.sum(-1, keepdim=True), tangent, rtol=1e-9, atol=1e-12)

    def test_two_classes_agree_with_score_bins(self):
        log_probs = random_log_probs(100, 2)
        shells = selbo.CornerShells(2, (0.7, 0.9)).assign(log_probs)  # 1 > .9 | 2 > .9 | 1 > .7 | 2 > .7 | centre
        bins = selbo.ScoreBins([0.1, 0.3, 0.7, 0.9]).assign(log_probs)
        assert torch.equal(torch.tensor([0, 2, 4, 3, 1])[bins], shells)


class TestClassRegions:
    def test_temperature_one_is_the_mean_softmax(self):
        log_probs = random_log_probs(20, 5)
        torch.testing.assert_close(selbo.ClassRegions(5).memberships(log_probs), log_probs.exp())

    def test_has_no_slope(self):
        with pytest.raises(
            ValueError, match="`set_slope_factor` needs a partition with edges, but ClassRegions has none"
        ):
            selbo.ClassRegions(3).set_slope_factor(2.0)


class TestConfidenceBins:
    def test_bins_of_the_largest_probability(self):
        bins = selbo.ConfidenceBins([0.5, 0.9], num_classes=4)
        probs = torch.tensor([[0.4, 0.2, 0.2, 0.2], [0.1, 0.1, 0.7, 0.1], [0.01, 0.95, 0.03, 0.01]])
        assert bins.assign(probs.log()).tolist() == [0, 1, 2]

    def test_the_class_does_not_matter(self):
        bins = selbo.ConfidenceBins([0.3, 0.6], num_classes=5)
        log_probs = random_log_probs(40, 5)
        torch.testing.assert_close(bins.memberships(log_probs), bins.memberships(log_probs[:, [4, 2, 0, 1, 3]]))


class TestPrecision:
    def test_half_precision_networks_keep_double_precision_edges(self):
        bins = selbo.ScoreBins([0.1, 1 - 1e-6])
        network = torch.nn.Sequential(torch.nn.BatchNorm1d(2), bins)
        network.half()
        assert network[0].weight.dtype == torch.float16
        assert bins.edges.positions.dtype == torch.float64
        network.to(torch.bfloat16)
        assert bins.edges.positions[1].item() == pytest.approx(math.log((1 - 1e-6) / 1e-6))

    def test_a_device_without_double_precision_gets_single(self):
        bins = selbo.ScoreBins([0.1, 0.5])

        def no_double(tensor):
            if tensor.dtype == torch.float64:
                raise TypeError("no float64 here")
            return tensor

        bins._apply(no_double)
        assert bins.edges.positions.dtype == torch.float32
        assert bins.memberships(binary(0.3, dtype=torch.float32)).isfinite().all()


class TestAnnealing:
    def test_in_place_and_from_a_tensor(self):
        bins = selbo.ScoreBins([0.3, 0.5])
        address = bins.edges.slope_factor.data_ptr()
        bins.set_slope_factor(torch.tensor(3.0))
        assert bins.edges.slope_factor.item() == 3.0
        assert bins.edges.slope_factor.data_ptr() == address  # so that a captured graph sees it

    def test_bad_values(self):
        with pytest.raises(ValueError, match="`slope_factor` must be a finite number greater than 0, but got -1"):
            selbo.ScoreBins([0.3]).set_slope_factor(-1)


class TestBadInput:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: selbo.ScoreBins([]), "`edges` must hold at least one number"),
            (lambda: selbo.ScoreBins([0.5, 0.2]), r"`edges` must be strictly increasing, but got \[0.5, 0.2\]"),
            (lambda: selbo.ScoreBins([0.5, 0.5]), "`edges` must be strictly increasing"),
            (lambda: selbo.ScoreBins([0.0, 0.5]), "`edges` must lie strictly between 0 and 1"),
            (lambda: selbo.ScoreBins([0.5, 1.0]), "`edges` must lie strictly between 0 and 1"),
            (lambda: selbo.ScoreBins([math.nan]), "`edges` must be a number, but got NaN"),
            (lambda: selbo.ScoreBins([0.5], space="log"), r"`space` must be one of \['logit', 'probability'\]"),
            (lambda: selbo.ScoreBins([0.5], slope_factor=0), "`slope_factor` must be a finite number greater than 0"),
            (lambda: selbo.ScoreBins.equal(1), "`num_bins` must be a whole number of at least 2, but got 1"),
            (lambda: selbo.CornerShells(1), "`num_classes` must be a whole number of at least 2, but got 1"),
            (lambda: selbo.CornerShells(3, (0.4, 0.9)), "`thresholds` must be at least 0.5"),
            (lambda: selbo.CornerShells(3, (0.9, 0.8)), "`thresholds` must be strictly increasing"),
            (lambda: selbo.CornerShells(3, ()), "`thresholds` must hold at least one number"),
            (lambda: selbo.ClassRegions(2, temperature=0.0), "`temperature` must be a finite number greater than 0"),
            (
                lambda: selbo.ConfidenceBins([0.2], num_classes=4),
                "`edges` must lie strictly between 0.25 and 1, as the largest of 4",
            ),
        ],
    )
    def test_construction(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()

    @pytest.mark.parametrize("method", ["memberships", "assign"])
    def test_shapes_and_types_are_always_checked(self, partition, method):
        call, count = getattr(partition, method), partition.num_classes
        with pytest.raises(ValueError, match=f"`log_probs` must have {count} classes in its last dimension"):
            call(torch.zeros(3, count + 1))
        with pytest.raises(ValueError, match=r"`log_probs` must not be an empty batch, but got shape \(0, "):
            call(torch.zeros(0, count))
        with pytest.raises(ValueError, match=r"`log_probs` must have shape \(..., batch, classes\), but got"):
            call(torch.zeros(count))
        with pytest.raises(
            ValueError, match=r"`log_probs` must be a floating-point tensor, but got dtype torch\.int64"
        ):
            call(torch.zeros(3, count, dtype=torch.long))
        with pytest.raises(ValueError, match="`log_probs` must be a floating-point tensor, but got list"):
            call([[0.0] * count])

    @pytest.mark.parametrize("method", ["memberships", "assign"])
    def test_values_are_checked_on_demand(self, partition, method):
        call, count = getattr(partition, method), partition.num_classes
        good = torch.zeros(3, count).log_softmax(-1)
        call(good, validate=True)
        with pytest.raises(ValueError, match="`log_probs` must hold numbers, but got 1 NaN"):
            call(
                torch.cat([good, torch.full((1, count), -1.0).index_fill(1, torch.tensor(0), math.nan)]), validate=True
            )
        with pytest.raises(ValueError, match=r"at most 0, but the largest is 2; if these are logits, pass"):
            call(good + 2 - good.max(), validate=True)
        with pytest.raises(ValueError, match=r"the probabilities of a row differ from a sum of 1 by up to 0\.63"):
            call(good - 1, validate=True)
        assert call(good - 1) is not None  # without validate nobody looks, so nobody waits for the device

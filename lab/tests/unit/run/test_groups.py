"""Studies of class fractions of groups: cases, methods and the choice of settings, compared with other calculations."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from selbo import ClassRegions, GroupedSummary, calibrate_to_belief, fit
from selbo.models import MLP
from selbo.objectives import Objective
from selbo.posteriors import NaturalGradientPosterior
from selbo_lab.data import catalogue
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.tables import TableWithGroups, group_column
from selbo_lab.run import group_cases, group_methods, group_runs
from selbo_lab.run.execute import execute_run
from selbo_lab.run.group_cases import GroupCase, group_case, with_rows_to_learn_from, without_groups
from selbo_lab.schedule import runner
from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec, ModelSpec, Recipe, RunSpec

LINEAR = ModelSpec("mlp")
STATES = DataSpec("voters", generated=True, groups="state", group_accuracy=0.8)


def run_spec(objective: str, data: DataSpec = STATES, *, test: bool = True, **settings: object) -> RunSpec:
    recipe = Recipe(objective, **{"steps": 50, "weight_decay": 1.0, **settings})  # type: ignore[arg-type]
    return RunSpec(data, LINEAR, recipe, EvaluationSpec(test=test), 0)


# --- cases ---


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> TableWithGroups:
    """200 people in groups a (1 of 2), b (1 of 5) and c, of whom there are four."""
    names = np.array(["a"] * 96 + ["b"] * 100 + ["c"] * 4)
    labels = torch.tensor([i % 2 for i in range(96)] + [int(i % 5 == 0) for i in range(100)] + [1] * 4)
    rows = LabelledData("t", torch.arange(200.0).unsqueeze(1), labels, ("no", "yes"), "made", "none")
    stated = torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.1, 0.9]], dtype=torch.float64)
    made = TableWithGroups(rows, {"group": group_column(names)}, {"group": stated})
    monkeypatch.setitem(catalogue.TABLES, "t", lambda: made)
    group_case.cache_clear()
    return made


def test_fractions_are_those_of_the_training_rows(table: TableWithGroups) -> None:
    case = group_case(DataSpec("t", groups="group", least_group=10), 3)
    assert case.names == ("a", "b")
    rows = case.train.inputs[:, 0].long()
    for group, members in enumerate((rows < 96, (rows >= 96) & (rows < 196))):
        assert torch.equal(case.groups == group, members)
        share = table.rows.labels[rows[members]].double().mean()
        torch.testing.assert_close(case.fractions[group], torch.stack([1 - share, share]))
    assert torch.equal(case.groups == -1, rows >= 196)  # the small group
    assert torch.equal(case.concentration, case.sizes.double())
    assert len(case.train) == 140
    assert not set(rows.tolist()) & set(case.test.inputs[:, 0].long().tolist())
    assert torch.equal(case.test_groups == 0, case.test.inputs[:, 0] < 96)


@pytest.mark.usefixtures("table")
def test_random_bags() -> None:
    case = group_case(DataSpec("t", groups="random", group_size=16, few_labels=7), 3)
    assert case.sizes.tolist() == [16] * 8 + [12]
    assert (case.test_groups == -1).all()
    assert len(case.labelled.unique()) == 7
    mean = torch.bincount(case.train.labels, minlength=2) / len(case.train)
    torch.testing.assert_close(case.overall, mean.double())


@pytest.mark.usefixtures("table")
def test_official_and_noisy_fractions_with_their_precision() -> None:
    official = group_case(DataSpec("t", groups="group", official=True, stated_deviation=0.1), 3)
    assert official.fractions[:, 1].tolist() == [0.4, 0.3, 0.9]
    expected = [0.24 / 0.01 - 1, 0.21 / 0.01 - 1, 0.09 / 0.01 - 1]
    expected = [min(value, size) for value, size in zip(expected, official.sizes.tolist(), strict=True)]
    torch.testing.assert_close(official.concentration, torch.tensor(expected, dtype=torch.float64))
    exact, noisy = (group_case(DataSpec("t", groups="group", fraction_noise=each), 3) for each in (0.0, 0.05))
    assert torch.equal(exact.train.inputs, noisy.train.inputs)
    torch.testing.assert_close(noisy.fractions.sum(1), torch.ones(3, dtype=torch.float64))
    assert 0 < (noisy.fractions - exact.fractions).abs().max() < 0.3


@pytest.mark.usefixtures("table")
def test_a_concentration_stated_for_every_group_is_at_most_its_size() -> None:
    case = group_case(DataSpec("t", groups="group", official=True, stated_concentration=16.0), 3)
    assert case.concentration.tolist() == [min(16.0, size) for size in case.sizes.tolist()]
    assert min(case.sizes.tolist()) < 16 < max(case.sizes.tolist())
    with pytest.raises(ValueError, match="either `stated_deviation` or `stated_concentration`"):
        DataSpec("t", groups="group", stated_deviation=0.1, stated_concentration=16.0)


@pytest.mark.usefixtures("table")
def test_fractions_counted_among_the_rows_can_be_stated_without_an_error() -> None:
    data = DataSpec("t", groups="group")
    case = group_case(data, 3)
    exact = group_cases.with_exact_counts(case, data)
    assert exact.concentration.tolist() == [100 * size for size in case.sizes.tolist()]
    assert torch.equal(exact.fractions, case.fractions)
    for changes in ({"official": True, "stated_deviation": 0.1}, {"fraction_noise": 0.05}):
        other = replace(data, **changes)  # type: ignore[arg-type]
        assert group_cases.with_exact_counts(group_case(other, 3), other) is group_case(other, 3)


def test_uneven_bags_have_one_size_and_fractions_from_the_whole_simplex(seed: int) -> None:
    labels = torch.bernoulli(torch.full((6000,), 0.4), generator=torch.Generator().manual_seed(seed)).long()
    bags = group_cases.uneven_bags(labels, 20, seed=seed)
    sizes = torch.bincount(bags[bags >= 0])
    assert set(sizes.tolist()) == {20}
    fractions = torch.stack([labels[bags == each].double().mean() for each in range(len(sizes))])
    # uniform: variance 1/12, and that of a sample of 20; bags that are random have .24 / 20
    expected = 1 / 12 + (1 / 6) / 20
    assert fractions.var().item() == pytest.approx(expected, rel=0.35)
    assert len(sizes) > 150
    assert not torch.equal(bags, group_cases.uneven_bags(labels, 20, seed=seed + 1))


def test_embeddings_are_scaled_by_the_training_part() -> None:
    case = group_case(DataSpec("sst", generated=True, groups="uneven", group_size=8, group_accuracy=0.8), 3)
    assert case.train.inputs.square().sum(1).mean().item() == pytest.approx(group_cases.SQUARED_LENGTH, rel=0.02)
    torch.testing.assert_close(case.train.inputs.mean(0), torch.zeros(768), atol=1e-6, rtol=0)
    assert case.test.inputs.mean(0).abs().max() > 1e-3
    assert (case.test_groups == -1).all()
    assert case.sizes.tolist() == [8] * len(case.names)


@pytest.mark.usefixtures("table")
def test_held_out_groups_leave_no_row_and_no_label() -> None:
    case = group_case(DataSpec("t", groups="group", least_group=10, few_labels=60), 3)
    rest = without_groups(case, torch.tensor([True, False]))
    assert (rest.groups != 0).all()
    assert len(rest.train) == int((case.groups != 0).sum())
    kept = case.labelled[case.groups[case.labelled] != 0]
    assert torch.equal(rest.train.inputs[rest.labelled], case.train.inputs[kept])
    needed = with_rows_to_learn_from(rest)
    assert len(needed.train) == int(
        ((rest.groups >= 0) | torch.isin(torch.arange(len(rest.groups)), rest.labelled)).sum()
    )


def test_settings_of_groups_need_groups() -> None:
    with pytest.raises(ValueError, match="`few_labels` is about `groups`"):
        DataSpec("voters", few_labels=20)


# --- methods ---


def small_case(inputs: torch.Tensor, labels: torch.Tensor, groups: torch.Tensor) -> GroupCase:
    rows = LabelledData("made", inputs, labels, ("no", "yes"), "", "")
    count = int(groups.max()) + 1
    hot = F.one_hot(labels, 2).double()
    fractions = torch.stack([hot[groups == each].mean(0) for each in range(count)])
    sizes = torch.bincount(groups).double()
    names = tuple(map(str, range(count)))
    return GroupCase(rows, groups, names, fractions, sizes, torch.arange(0), rows, groups)


def test_targets_of_easy_llp_are_right_in_expectation() -> None:
    """Over all labels of a bag of three whose members are independently of class 1 with probability .3."""
    mean = torch.zeros(2, 2, dtype=torch.float64)  # by the label of the first member
    for labels in itertools.product((0, 1), repeat=3):
        weight = math.prod(0.3 if each else 0.7 for each in labels[1:])
        case = small_case(torch.zeros(3, 1), torch.tensor(labels), torch.zeros(3).long())
        sizes, overall = case.sizes.double().unsqueeze(1), torch.tensor([0.7, 0.3], dtype=torch.float64)
        mean[labels[0]] += weight * (sizes * case.fractions - (sizes - 1) * overall)[0]
    torch.testing.assert_close(mean, torch.eye(2, dtype=torch.float64))


def test_the_terms_are_the_published_losses(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    groups = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2])
    case = small_case(torch.randn(9, 2, generator=generator), torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 0]), groups)
    log_probs = torch.randn(9, 2, generator=generator).double().log_softmax(-1)
    means = torch.stack([log_probs.exp()[groups == each].mean(0) for each in range(3)])
    term = group_methods.group_term(Recipe("proportion_loss"), case)
    torch.testing.assert_close(term.summary(log_probs, groups), 3 * (case.fractions * means.log()).sum())  # 9 rows / 3
    easy = group_methods.group_term(Recipe("easy_llp"), case)
    assert easy.per_example
    size, overall = case.sizes.double(), case.overall
    by_hand = [
        sum((size[g] * case.fractions[g, k] - (size[g] - 1) * overall[k]) * log_probs[i, k] for k in range(2))
        for i, g in enumerate(groups.tolist())
    ]
    torch.testing.assert_close(easy.summary(log_probs[None], groups)[0], torch.stack(by_hand), rtol=1e-5, atol=1e-5)


def test_class_means_are_found_where_groups_differ_only_in_their_fractions() -> None:
    labels = torch.tensor([0, 0, 1, 0, 1, 1, 1, 0, 1])
    centres = torch.tensor([[1.0, -2.0], [3.0, 5.0]])
    case = small_case(centres[labels], labels, torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2]))
    torch.testing.assert_close(group_methods.class_means(case.train.inputs, case), centres.double())


def test_labels_of_self_training_are_the_most_probable_with_the_counts_of_the_group(seed: int) -> None:
    """Against all labels that there are."""
    generator = torch.Generator().manual_seed(seed)
    groups = torch.tensor([0, 1, 0, 0, 1, -1, 0, 1, 0])
    log_probs = torch.randn(9, 3, generator=generator).double().log_softmax(-1)
    case = small_case(torch.zeros(9, 1), torch.arange(9) % 2, groups.clamp(min=0))
    stated = torch.tensor([[2.2, 1.9, 0.9], [0.0, 1.4, 1.6]], dtype=torch.float64)  # counts (2, 2, 1) and (0, 1, 2)
    case = replace(case, groups=groups, fractions=stated / stated.sum(1, keepdim=True))
    found = group_methods.most_probable_labels(log_probs, case)
    assert found[5] == -1
    for group, answers in enumerate(([0, 0, 1, 1, 2], [1, 2, 2])):
        rows = log_probs[groups == group]
        every = torch.tensor(sorted(set(itertools.permutations(answers))))
        best = rows.gather(1, every.T).sum(0).argmax()
        assert torch.equal(found[groups == group], every[best])


def test_an_adversarial_perturbation_moves_the_logits_most(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    network = MLP((3, 2), generator=generator)
    inputs = torch.randn(4, 3, generator=generator)
    noise = F.normalize(torch.randn(4, 3, generator=generator), dim=1)
    log_probs = network(inputs).log_softmax(-1)
    found = group_methods.perturbation_loss(network, inputs, log_probs, noise, 0.5)
    (weight, _) = network.parameters()
    steepest = F.normalize(weight[1] - weight[0], dim=0)
    sign = (noise @ steepest).sign().unsqueeze(1)  # it starts on that side
    moved = network(inputs + 0.5 * sign * steepest).log_softmax(-1)
    expected = (log_probs.exp() * (log_probs - moved)).sum()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def made_people(seed: int, *, count: int = 600) -> GroupCase:
    generator = torch.Generator().manual_seed(seed)
    groups = torch.arange(count) % 12
    inputs = torch.randn(12, 2, generator=generator)[groups] + torch.randn(count, 2, generator=generator)
    labels = torch.bernoulli((3 * inputs[:, 0]).sigmoid(), generator=generator).long()
    return small_case(inputs, labels, groups)


def test_all_labels_are_logistic_regression(seed: int) -> None:
    from sklearn.linear_model import LogisticRegression

    case = made_people(seed)
    network = group_methods.train_group_method(run_spec("all_labels", weight_decay=4.0, steps=200), case)
    found = network(case.train.inputs).softmax(-1)[:, 1]
    other = LogisticRegression(C=0.5, tol=1e-8).fit(case.train.inputs.numpy(), case.train.labels.numpy())  # two columns
    np.testing.assert_allclose(found.numpy(), other.predict_proba(case.train.inputs.numpy())[:, 1], atol=5e-3)


def test_targets_of_unequal_groups_do_not_make_the_bias_infinite() -> None:
    """A group of 500 whose fraction is below the mean has targets whose mean is far below 0."""
    groups = torch.tensor([0] * 500 + [1] * 20)
    labels = torch.cat([torch.arange(500) % 5 == 0, torch.ones(20)]).long()
    case = small_case(torch.zeros(520, 1), labels, groups)
    network = group_methods.train_group_method(run_spec("easy_llp", weight_decay=1e5), case)
    assert network(torch.zeros(1, 1)).log_softmax(-1).min() > -5


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "group_belief", "form": "counts"},
        {"objective": "group_belief", "form": "dirichlet"},
        {"objective": "group_belief", "form": "multinomial"},
        {"objective": "proportion_loss"},
        {"objective": "easy_llp", "weight_decay": 1e4},
        {"objective": "mean_map", "weight_decay": 10.0},
        {"objective": "llp_vat", "vat_weight": 0.01},
    ],
    ids=lambda settings: "-".join(str(each) for each in settings.values()),
)
def test_methods_learn_from_groups_alone(settings: dict[str, object]) -> None:
    case = made_people(0, count=2400)
    spec = run_spec(**settings)  # type: ignore[arg-type]
    network = group_methods.train_group_method(spec, case)
    right = (network(case.train.inputs).argmax(-1) == case.train.labels).double().mean()
    assert right > max(case.overall) + 0.1


def test_predictions_of_a_group_corrected_and_scaled() -> None:
    case = replace(made_people(0), labelled=torch.arange(30))
    inputs, groups = case.train.inputs[:6], torch.tensor([0, 1, 2, 3, 4, -1])
    rate = group_methods.group_predictions(run_spec("group_rate"), case, None, inputs, groups).exp()
    torch.testing.assert_close(rate[:5], case.fractions[:5].clamp(1e-3, 1 - 1e-3))
    torch.testing.assert_close(rate[5], case.overall)
    spec = run_spec("few_labels", correction="known")
    network = group_methods.train_group_method(spec, case)
    plain = network(inputs).double().softmax(-1)
    known = torch.bincount(case.train.labels[:30], minlength=2) + 0.5
    expected = plain * rate / (known / known.sum())
    found = group_methods.group_predictions(spec, case, network, inputs, groups).exp()
    torch.testing.assert_close(found, expected / expected.sum(1, keepdim=True), rtol=1e-5, atol=1e-6)
    data = replace(STATES, group_accuracy=0.9)
    spec = run_spec("group_belief", data, form="counts", states_accuracy=True, accuracy_off=-0.05)
    everyone = group_methods.group_predictions(spec, case, network, case.train.inputs, case.groups)
    assert everyone.exp().amax(1).mean().item() == pytest.approx(0.85, abs=2e-3)


def test_an_accuracy_in_training_makes_predictions_as_sure_as_stated(seed: int) -> None:
    """The stationary point is checked by the gradient of the objective, written out."""
    case = made_people(seed)
    data = replace(STATES, group_accuracy=0.9)
    spec = run_spec("group_belief", data, form="multinomial", accuracy_concentration=700.0, accuracy_off=-0.02)
    network = group_methods.train_group_method(spec, case).requires_grad_(True)
    log_probs = network(case.train.inputs).log_softmax(-1)
    sure = log_probs.exp().amax(1).mean()
    value = 700 * (0.88 * sure.log() + 0.12 * (1 - sure).log())
    for group, (stated, strength) in enumerate(zip(case.fractions, case.concentration, strict=True)):
        mean = log_probs.exp()[case.groups == group].mean(0)
        value = value + strength * (stated * mean.log()).sum()
    weights = [each for each in network.parameters() if each.ndim > 1]
    value = value - 0.5 * sum(each.square().sum() for each in weights)
    value.backward()
    assert all(each.grad.abs().max() < 0.02 * len(case.train) ** 0.5 for each in network.parameters())
    without = group_methods.train_group_method(
        replace(spec, recipe=replace(spec.recipe, accuracy_concentration=0.0)), case
    )
    before = without(case.train.inputs).softmax(-1).amax(1).mean()
    assert abs(sure.item() - 0.88) < abs(before.item() - 0.88)


def test_runs_with_different_accuracies_in_training_do_not_share_networks() -> None:
    specs = [run_spec("group_belief", accuracy_concentration=9.0, accuracy_off=each) for each in (0.0, 0.05)]
    assert specs[0].training != specs[1].training
    apart = [run_spec("group_belief", states_accuracy=True, accuracy_off=each) for each in (0.0, 0.05)]
    assert apart[0].training == apart[1].training


def bags_of_images(**settings: object) -> tuple[RunSpec, GroupCase]:
    """Eight bags of eight images, in which the share of the second class grows."""
    images = torch.randint(256, (64, 1, 28, 28), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    bags = torch.arange(64) // 8
    rows = LabelledData("images", images, (torch.arange(64) % 8 < bags).long(), ("a", "b"), "", "")
    case = replace(small_case(images.flatten(1).float(), rows.labels, bags), train=rows, test=rows)
    data = DataSpec("fashion", groups="random", group_size=8)
    recipe = {"form": "counts", "steps": 2, "batch_size": 32, **settings}
    return replace(run_spec("group_belief", data, **recipe), model=ModelSpec("lenet")), case


def test_images_are_trained_in_batches_of_bags() -> None:
    spec, case = bags_of_images()
    methods = [{"objective": each} for each in ("group_belief", "proportion_loss", "easy_llp", "all_labels")]
    for settings in (*methods, {"bayesian": True, "posterior": "natural_gradient"}):
        recipe = replace(spec.recipe, **settings)
        network = group_methods.train_group_method(replace(spec, recipe=recipe), case)
        assert isinstance(network, NaturalGradientPosterior) == bool(recipe.posterior)
        found = group_methods.group_predictions(spec, case, network, case.train.network_inputs(), case.groups)
        assert found.shape == (64, 2)
        assert found.isfinite().all()
    for settings, message in (
        ({"objective": "mean_map"}, "'mean_map' is for tables"),
        ({"accuracy_concentration": 9.0}, "`accuracy_concentration` is for tables"),
        ({"members": 2}, "`rounds` is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            group_methods.train_group_method(replace(spec, recipe=replace(spec.recipe, **settings)), case)


def test_self_training_has_a_new_network_learn_from_labels_with_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, case = bags_of_images(rounds=2)
    case = replace(case, labelled=torch.tensor([3, 60]))
    seen: list[tuple[object, torch.Tensor]] = []

    def spy(posterior: object, objective: Objective, data: tuple[torch.Tensor, torch.Tensor], **settings: Any) -> None:
        assert bool(objective.terms) == ("groups" in settings) == (not seen)
        seen.append((posterior, data[1]))
        fit(posterior, objective, data, **settings)

    monkeypatch.setattr(group_methods, "fit", spy)
    last = group_methods.train_group_method(spec, case)
    assert len({id(posterior) for posterior, _ in seen}) == 3
    assert seen[2][0] is last
    for number, (_, labels) in enumerate(seen):
        assert torch.equal(labels[case.labelled], case.train.labels[case.labelled])
        assert int((labels == -1).sum()) == (0 if number else 62)
    shares = seen[1][1].view(8, 8).double().mean(1)
    assert (shares - case.fractions[:, 1]).abs().max() <= 1 / 8  # the known labels may change a count by one
    with pytest.raises(ValueError, match="`rounds` is for images"):
        group_methods.train_group_method(run_spec("group_belief", rounds=1), made_people(0))


def test_several_teachers_label_images_by_their_mean_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, case = bags_of_images(rounds=1, members=3)
    trained: list[tuple[Any, torch.Tensor, int]] = []

    def spy(posterior: object, objective: Objective, data: Any, **settings: Any) -> None:
        trained.append((posterior, data[1] if isinstance(data, tuple) else torch.empty(0), settings["seed"]))
        fit(posterior, objective, data, **settings)

    monkeypatch.setattr(group_methods, "fit", spy)
    last = group_methods.train_group_method(spec, case)
    assert last is trained[3][0]
    teachers = [posterior for posterior, _, _ in trained[:3]]
    assert len({seed for _, _, seed in trained[:3]}) == 3
    inputs, groups = case.train.network_inputs(), case.groups
    probs = [group_methods.group_predictions(spec, case, each, inputs, groups).exp() for each in teachers]
    mean = torch.stack(probs).mean(0).log()
    assert torch.equal(trained[3][1], group_methods.most_probable_labels(mean, case))


# --- runs ---


def test_a_run_measures_test_rows_and_a_tuning_run_none() -> None:
    found = execute_run(run_spec("group_belief", form="counts"))
    assert found.tested
    assert found.sizes == {"train": 84, "groups": 6, "test": 36}
    assert {"nll", "ece", "accuracy", "auroc"} <= found.conditions["clean"].metrics.keys()
    tuning = execute_run(run_spec("group_belief", form="counts", test=False))
    assert not tuning.tested
    assert tuning.val is not None
    assert math.isfinite(tuning.val.value("nll") or math.nan)


def test_held_out_counts_calibrate_a_network_that_did_not_learn_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = run_spec("group_belief", replace(STATES, groups="random", group_size=7), form="counts", exact_up_to=64)
    case = group_case(spec.data, spec.seed)
    rows = group_runs.parts_of_groups(len(case.names), group_runs.GROUP_PARTS, seed=spec.seed)[case.groups] == 0
    network = MLP((case.train.inputs.shape[1], 2), generator=torch.Generator().manual_seed(0)).requires_grad_(False)
    learned_from = []

    def spy(_: RunSpec, without: GroupCase, **__: object) -> MLP:
        learned_from.append(without.groups)
        return network

    monkeypatch.setattr(group_runs, "train_group_method", spy)
    metrics = []
    for calibrated in (False, True):
        group_runs._LAST.training = None
        found = execute_run(replace(spec, recipe=replace(spec.recipe, calibrated_by_counts=calibrated)))
        metrics.append(found.conditions["clean"].metrics)
    group_runs._LAST.training = None
    assert torch.equal(learned_from[0], case.groups)
    assert torch.equal(learned_from[1], case.groups[~rows])
    counts = GroupedSummary(ClassRegions(2), case.fractions, case.concentration.clamp(max=100), form="counts")
    predicted, held_out = (
        group_methods._log_probs(network, each.network_inputs(), draws=1)
        for each in (case.test, case.train.rows(rows.nonzero().squeeze(1)))
    )
    correct = calibrate_to_belief(held_out, counts, groups=case.groups[rows])
    for log_probs, measured in zip((predicted, correct(predicted)), metrics, strict=True):
        nll = -log_probs.gather(1, case.test.labels[:, None]).mean().item()
        assert measured["nll"] == pytest.approx(nll, rel=1e-5)
    assert metrics[0]["nll"] != pytest.approx(metrics[1]["nll"], rel=1e-2)


def test_predictions_that_are_not_numbers_are_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    network = MLP((group_cases.SMOKE_GROUP_FEATURES, 2), generator=torch.Generator().manual_seed(0))
    torch.nn.init.constant_(next(network.parameters()), 3e38)
    monkeypatch.setattr(group_runs, "train_group_method", lambda *_, **__: network)
    for test in (False, True):
        group_runs._LAST.training = None
        found = execute_run(run_spec("easy_llp", test=test))
        assert found.status == "diverged"
        assert found.error == "the predictions are not numbers"
    group_runs._LAST.training = None


def test_settings_are_chosen_by_held_out_counts_and_labels() -> None:
    """Of a method that needs no training; with two classes and a certain concentration the likelihood is binomial."""
    case = replace(made_people(0), labelled=torch.arange(5))
    case = replace(case, fractions=case.fractions.clamp(0.1, 0.9), concentration=torch.full((12,), 1e9))
    case = replace(case, fractions=case.fractions / case.fractions.sum(1, keepdim=True))
    log_probs = case.fractions[case.groups].log()
    for exact, concentration, limit in ((False, 100.0, 8), (True, 1e9, 8), (True, 1e9, 64)):
        found = group_runs.held_out_nll(run_spec("group_rate", exact_counts=exact, exact_up_to=limit), case)
        counts = GroupedSummary(ClassRegions(2), case.fractions, concentration, form="counts", exact_up_to=limit)
        expected = -counts(log_probs, case.groups) - log_probs[:5].gather(1, case.train.labels[:5, None]).sum()
        assert found == pytest.approx(expected.item() / 12, rel=1e-6)


def test_labels_of_unlabelled_rows_do_not_matter(seed: int) -> None:
    case = replace(made_people(seed), labelled=torch.arange(9))
    other = case.train.labels.clone()
    other[9:] = 1 - other[9:]
    changed = replace(case, train=replace(case.train, labels=other))
    for settings in (
        {"objective": "group_belief", "form": "counts", "states_accuracy": True},
        {"objective": "few_labels"},
    ):
        spec = run_spec(test=False, **settings)  # type: ignore[arg-type]
        results = []
        for each in (case, changed):
            group_runs._LAST.training = None
            results.append(group_runs.held_out_nll(spec, each))
        assert results[0] == results[1]


def test_runs_that_differ_only_in_the_stated_accuracy_share_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    real = group_runs.train_group_method
    monkeypatch.setattr(
        group_runs, "train_group_method", lambda *given, **named: trained.append(1) or real(*given, **named)
    )
    group_runs._LAST.training = None
    specs = [run_spec("group_belief", test=False, states_accuracy=each) for each in (True, False)]
    first, second = map(execute_run, specs)
    assert len(trained) == group_runs.GROUP_PARTS
    assert first.val != second.val
    execute_run(run_spec("group_belief", test=False, weight_decay=2.0))
    assert len(trained) == 2 * group_runs.GROUP_PARTS


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("groups", 4),
        ("groups-labels", 4),
        ("groups-small", 4),
        ("groups-images", 3),
        ("groups-fashion", 3),
        ("groups-fashion-convnet", 4),
        ("groups-cifar10", 8),
    ],
)
def test_a_study_of_groups_has_groups_and_equal_budgets(name: str, settings: int) -> None:
    """It runs in lab/tests/end_to_end/test_trials.py, on tiny data."""
    real = runner.load_known_study(name)
    for variant in real.variants:
        assert variant.data.groups
        assert variant.data.group_accuracy > 0.5
        assert bool(variant.data.few_labels) == (name == "groups-labels")
    tuned = [each for each in real.tracks[0].methods if each.grid]
    budgets = {len(each.candidates()) for each in tuned if not each.name.endswith("-wide")}
    assert budgets == {settings}, "every method tries as many settings"
    narrow = {each.name: set(each.candidates()) for each in tuned}
    for each in tuned:
        if each.name.endswith("-wide"):  # baselines alone
            assert each.recipe.objective != "group_belief"
            assert set(each.candidates()) > narrow[each.name.removesuffix("-wide")]


def test_generated_tables_have_the_columns_of_the_case() -> None:
    case = group_case(replace(STATES, groups="education x occupation"), 0)
    assert len(case.names) == group_cases.SMOKE_GROUPS

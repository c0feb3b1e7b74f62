"""What holds for every objective: signs, scales, gradients, precision, noise, warm-up, and what is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from unit.objectives.cases import (
    BATCH,
    CASES,
    F64,
    NUM_DATA,
    OTHER_CASES,
    SUMMARY_CASES,
    Case,
    bins,
    further,
    inputs,
    noise,
    plain_net,
    shells,
    terms_of,
)

import selbo
from selbo.nn import to_bayesian
from selbo.objectives import (
    ELBO,
    CrossEntropy,
    EntropyMinimisation,
    Evidential,
    ExpectationRegularisation,
    LabelSmoothing,
    SummaryELBO,
    Terms,
)
from selbo.objectives.objective import warm_up
from selbo.posteriors import forward_samples, kl_divergence

EXACT = {"rtol": 1e-11, "atol": 1e-11}
PARTS = ("log_likelihood", "kl", "further")

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
with_summary = pytest.mark.parametrize("case", SUMMARY_CASES, ids=lambda case: case.name)
shared_draws = pytest.mark.parametrize("case", [case for case in CASES if case.shared], ids=lambda case: case.name)


def part(terms: Terms, name: str) -> Tensor:
    return further(terms) if name == "further" else getattr(terms, name)


def close(got, expected, **tolerance) -> None:
    torch.testing.assert_close(got, expected, **(tolerance or EXACT))


# --- values ---


@every
def test_terms_are_finite_numbers_of_the_right_sign(case: Case) -> None:
    model, objective = case.net(), case.objective()
    terms = terms_of(case, model, objective)
    for name in (*PARTS, "elbo", "loss"):
        value = part(terms, name)
        assert value.shape == (), name
        assert value.dtype == F64
        assert value.isfinite()
    assert terms.kl >= 0
    assert terms.log_likelihood < 0  # log of a probability, or less a loss
    assert (terms.kl > 0) == (case.bayesian or isinstance(objective, Evidential))
    assert (further(terms) != 0) == objective.has_summary
    assert (terms.log_summary != 0) == bool(objective.summaries)
    assert terms.num_data == NUM_DATA


@every
def test_the_loss_is_the_negative_total_for_one_example(case: Case) -> None:
    objective = case.objective()
    objective.kl.weight = 0.3
    for each in objective.terms:
        each.weight = 0.7
    terms = terms_of(case, case.net(), objective)
    total = terms.log_likelihood.item() - 0.3 * terms.kl.item() + 0.7 * further(terms).item()
    assert terms.elbo.item() == pytest.approx(total, rel=1e-13)
    assert terms.loss.item() == pytest.approx(-total / NUM_DATA, rel=1e-13)


def test_terms_for_a_log_have_no_graph() -> None:
    model = plain_net()
    terms = CrossEntropy(NUM_DATA, shells())(model, inputs(), torch.arange(BATCH) % 3)
    named = terms.named()
    assert list(named) == ["loss", "log_likelihood", "kl", "log_summary"]
    assert not any(value.requires_grad for value in named.values())
    assert terms.loss.requires_grad
    assert [value.item() for value in named.values()] == [getattr(terms, name).item() for name in named]


@every
def test_printing_shows_the_settings(case: Case) -> None:
    assert f"num_data={NUM_DATA}" in repr(case.objective())


def test_printing_shows_what_was_changed() -> None:
    shown = repr(
        SummaryELBO(
            bins(),
            9,
            kl_weight=0.5,
            kl_warmup=3,
            summary_weight=2.0,
            summary_warmup=4,
            estimator="local",
            accept_approximation=True,
        )
    )
    for part in ("KL(weight=0.5, warmup=3)", "weight=2.0, warmup=4", "concentration=30"):
        assert part in shown
    assert "estimator='local'" in shown
    assert "epsilon=0.2" in repr(LabelSmoothing(0.2, 9))
    assert "loss='cross_entropy', activation='exp'" in repr(Evidential(9, loss="cross_entropy", activation="exp"))


# --- gradients ---


@every
@pytest.mark.parametrize("norm", [False, True], ids=["", "BatchNorm"])
def test_every_parameter_has_a_gradient(case: Case, norm: bool) -> None:
    """For relu evidence the logits are raised above zero first; below it there is no gradient, see the next test."""
    model = case.net(norm=norm)
    terms_of(case, model).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).all(), name


def test_relu_evidence_has_no_gradient_below_zero() -> None:
    logits = torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True)
    Evidential(10, activation="relu")(Free(logits), torch.zeros(1, 1), torch.tensor([0])).loss.backward()
    assert (logits.grad == 0).all()


class Free(nn.Module):
    """Logits that depend on nothing."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, x):
        return self.logits.expand(len(x), -1)


@every
def test_extreme_logits_have_finite_terms_and_gradients(case: Case) -> None:
    for size in (1e2, 1e4):
        model = nn.Sequential(case.net(), Times(size))
        terms = terms_of(case, model)
        terms.loss.backward()
        assert all(part(terms, name).isfinite() for name in PARTS)
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


@every
def test_batch_norm_sees_the_batch_once(case: Case) -> None:
    """Running statistics move by one momentum, however many draws there are."""
    model = case.net(norm=True)
    norm = next(module for module in model.modules() if isinstance(module, nn.BatchNorm1d))
    terms_of(case, model)
    assert norm.num_batches_tracked == 1


# --- precision ---


@every
def test_single_precision_is_close_to_double(case: Case) -> None:
    """The spread is too small to be seen, because the two precisions do not draw the same noise."""
    model = case.net(init_std=1e-7)
    wide = terms_of(case, model)
    narrow = case.objective()(copy.deepcopy(model).float(), inputs().float(), case.labels(), 3, generator=noise())
    for name in PARTS:
        assert part(narrow, name).dtype == torch.float32
        close(part(narrow, name).double(), part(wide, name).detach(), rtol=2e-5, atol=2e-5)


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_has_terms_in_single_precision(case: Case, dtype: torch.dtype) -> None:
    model = case.net().to(dtype)
    terms = case.objective()(model, inputs().to(dtype), case.labels(), 3, generator=noise())
    assert {part(terms, name).dtype for name in (*PARTS, "loss")} == {torch.float32}
    terms.loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@every
def test_autocast_has_terms_in_single_precision(case: Case) -> None:
    model = case.net().float()
    with torch.autocast("cpu", torch.bfloat16):
        terms = case.objective()(model, inputs().float(), case.labels(), 3, generator=noise())
    assert {part(terms, name).dtype for name in PARTS} == {torch.float32}
    full = case.objective()(model, inputs().float(), case.labels(), 3, generator=noise())
    close(terms.log_likelihood, full.log_likelihood, rtol=0.02, atol=0.02 * NUM_DATA)


@with_summary
def test_a_belief_stays_exact_when_the_objective_is_cast(case: Case) -> None:
    """`.half()` on an objective reaches its buffers, but s0 and the parameters of a belief keep their digits."""
    model = case.net()
    close(further(terms_of(case, model, case.objective().half())), further(terms_of(case, model)))


# --- scale ---


@shared_draws
def test_minibatches_average_to_the_whole(case: Case) -> None:
    """Exactly, with the same weights, for what is a sum over examples; a summary is not, see the next test."""
    model, objective = case.net(), case.objective()
    whole = terms_of(case, model, objective)
    parts = [
        objective(model, x, y, 3, generator=noise())
        for x, y in zip(inputs().split(4), case.labels().split(4), strict=True)
    ]
    for name in PARTS[: 2 if case.whole else 3]:
        close(torch.stack([part(each, name) for each in parts]).mean(), part(whole, name))


@pytest.mark.parametrize("case", [case for case in CASES if case.whole and case.shared], ids=lambda case: case.name)
def test_the_summary_of_minibatches_is_at_most_that_of_the_whole(case: Case) -> None:
    """A histogram goes through a concave function: Jensen's inequality, and the smaller the batch the lower."""
    model, objective = case.net(), case.objective()
    means = []
    for size in (1, 2, 4, 6, 12):
        parts = [
            further(objective(model, x, y, 3, generator=noise()))
            for x, y in zip(inputs().split(size), case.labels().split(size), strict=True)
        ]
        means.append(torch.stack(parts).mean().item())
    one, two, four, six, twelve = means
    assert one < two < four < twelve
    assert two < six < twelve


@every
def test_twice_the_data_is_twice_the_likelihood(case: Case) -> None:
    model = case.net()
    once, twice = (terms_of(case, model, case.objective(n)) for n in (NUM_DATA, 2 * NUM_DATA))
    close(twice.log_likelihood, 2 * once.log_likelihood)
    # evidence is found for each example, and the independent summary scores each: sums over the data, as well
    evidential = isinstance(case.objective(), Evidential)
    close(twice.kl, (2 if evidential else 1) * once.kl)
    close(further(twice), (2 if case.by_data and not evidential else 1) * further(once))


@pytest.mark.parametrize("case", [case for case in CASES if case.bayesian], ids=lambda case: case.name)
def test_the_divergence_is_that_of_the_network(case: Case) -> None:
    model, objective = case.net(), case.objective()
    close(terms_of(case, model, objective).kl, case.kl(model))


@shared_draws  # the others draw noise layer by layer, in another order
def test_terms_are_means_over_draws(case: Case) -> None:
    """S draws together, as S calls in a row with the same generator."""
    model, objective = case.net(), case.objective()
    together = objective(model, inputs(), case.labels(), 3, generator=noise())
    generator = noise()
    apart = [objective(model, inputs(), case.labels(), 1, generator=generator) for _ in range(3)]
    for name in PARTS:
        close(part(together, name), torch.stack([part(each, name) for each in apart]).mean())


# --- noise ---


@every
def test_the_same_noise_gives_the_same_terms(case: Case) -> None:
    model = case.net()
    first, again = terms_of(case, model), terms_of(case, model)
    other = case.objective()(model, inputs(), case.labels(), 3, generator=noise(6))
    for name in PARTS:
        assert torch.equal(part(first, name), part(again, name))
    assert (first.log_likelihood != other.log_likelihood) == case.bayesian
    assert torch.equal(first.kl, other.kl)


@pytest.mark.parametrize("bayesian", [False, True])
def test_without_a_generator_noise_is_torchs_own(bayesian: bool) -> None:
    model = to_bayesian(plain_net()) if bayesian else plain_net()
    objective, labels = LabelSmoothing(0.1, NUM_DATA), torch.arange(BATCH) % 3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = objective(model, inputs(), labels).loss
        moved = not torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(0).get_state())
        torch.manual_seed(0)
        assert torch.equal(first, objective(model, inputs(), labels).loss)
    assert moved == bayesian


# --- unlabelled inputs ---


@with_summary
def test_unlabelled_inputs_are_what_the_summary_is_about(case: Case) -> None:
    model, objective, others = case.net(), case.objective(), 2 * inputs(8, count=7)
    terms = terms_of(case, model, objective, unlabelled=others)
    without = terms_of(case, model, objective)
    close(terms.kl, without.kl)
    moved = (further(terms) - further(without)).abs() > 1e-3
    assert moved == (case.name != "independent summary, uniform")  # a density that is flat
    if not case.shared:
        return  # more inputs, more noise
    close(terms.log_likelihood, without.log_likelihood)
    logits = forward_samples(model, others, 3, generator=noise()) if case.bayesian else model(others)[None]
    log_probs = logits.log_softmax(-1)
    if case.density:
        parameters = torch.tensor(case.density, dtype=F64)
        expected = NUM_DATA * torch.distributions.Dirichlet(parameters).log_prob(log_probs.exp()).mean()
    elif isinstance(objective, EntropyMinimisation):
        expected = -NUM_DATA * torch.distributions.Categorical(logits=logits).entropy().mean()
    elif isinstance(objective, ExpectationRegularisation):
        mean, stated = (logits / 0.7).softmax(-1).mean(-2)[0], torch.tensor([0.5, 0.2, 0.3], dtype=F64)
        expected = NUM_DATA * sum(p * (q / p).log() for p, q in zip(stated, mean, strict=True))
    else:
        (summary,) = objective.summaries
        expected = torch.stack([summary(draw) for draw in log_probs]).mean()
    close(further(terms), expected)


@pytest.mark.parametrize("case", SUMMARY_CASES[:-1], ids=lambda case: case.name)  # the last is flat
def test_unlabelled_inputs_reach_the_weights(case: Case) -> None:
    model = case.net()
    further(terms_of(case, model, unlabelled=inputs(8, count=7))).backward()
    assert all((parameter.grad != 0).any() for parameter in model.parameters())


@pytest.mark.parametrize("case", OTHER_CASES, ids=lambda case: case.name)
def test_without_a_summary_unlabelled_inputs_are_ignored(case: Case) -> None:
    model = case.net(norm=True)
    ignored = torch.full((7, 4), torch.nan, dtype=F64)
    with_them, without = terms_of(case, model, unlabelled=ignored), terms_of(case, model)
    for name in PARTS:
        assert torch.equal(part(with_them, name), part(without, name))


@with_summary
@pytest.mark.parametrize("shape", [(0, 4), (3, 5), (4,), ()])
def test_unlabelled_inputs_of_another_shape_are_refused(case: Case, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"`unlabelled` must .*shape \(U, ...\) with U at least 1, .* but got .*\("):
        terms_of(case, case.net(), unlabelled=torch.ones(shape, dtype=F64))


def test_batch_norm_takes_unlabelled_inputs_into_its_statistics() -> None:
    """They go through the network in the same pass; in evaluation mode they change nothing for the labels."""
    model, objective = to_bayesian(plain_net(norm=True)), SummaryELBO(shells(), NUM_DATA)
    labels, others = torch.arange(BATCH) % 3, 2 * inputs(8, count=7)

    def likelihood(unlabelled):
        return objective(model, inputs(), labels, generator=noise(), unlabelled=unlabelled).log_likelihood

    assert (likelihood(others) - likelihood(None)).abs() > 1e-3
    model.eval()
    close(likelihood(others), likelihood(None))


# --- warm-up ---


@pytest.mark.parametrize(
    ("step", "factor"), [(0, 0.25), (1, 0.5), (2, 0.75), (3, 1.0), (4, 1.0), (1000, 1.0), (None, 1.0)]
)
@pytest.mark.parametrize("as_tensor", [False, True])
def test_terms_grow_in(step: int | None, factor: float, as_tensor: bool) -> None:
    given = torch.tensor(step) if as_tensor and step is not None else step
    model, labels = to_bayesian(plain_net()), torch.arange(BATCH) % 3
    for kl_warmup, summary_warmup in [(4, 0), (0, 4), (4, 4)]:
        objective = SummaryELBO(
            shells(),
            NUM_DATA,
            kl_weight=0.4,
            kl_warmup=kl_warmup,
            summary_weight=3.0,
            summary_warmup=summary_warmup,
        )
        terms = objective(model, inputs(), labels, generator=noise(), step=given)
        by_kl, by_summary = 0.4 * (factor if kl_warmup else 1), 3.0 * (factor if summary_warmup else 1)
        assert float(terms.kl_weight) == pytest.approx(by_kl, rel=1e-6)
        assert float(terms.weights["log_summary"]) == pytest.approx(by_summary, rel=1e-6)
        expected = terms.log_likelihood - by_kl * terms.kl + by_summary * terms.log_summary
        close(terms.elbo, expected, rtol=1e-6, atol=1e-6)
        # the terms themselves do not change
        close(terms.kl, kl_divergence(model))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ELBO(NUM_DATA, kl_warmup=8),
        lambda: LabelSmoothing(0.1, NUM_DATA, kl_warmup=8),
        lambda: Evidential(NUM_DATA, annealing_steps=8),
        lambda: CrossEntropy(NUM_DATA, shells(), summary_warmup=4),
    ],
    ids=["elbo", "label smoothing", "evidential", "cross entropy"],
)
def test_every_objective_passes_its_warm_up_on(make) -> None:
    objective, net = make(), plain_net()
    model = to_bayesian(net) if objective.for_bayesian else net
    terms = objective(model, inputs(), torch.arange(BATCH) % 3, generator=noise(), step=1)
    assert terms.kl_weight == (1.0 if isinstance(objective, CrossEntropy) else 2 / 8)
    assert terms.weights == ({"log_summary": 2 / 4} if objective.has_summary else {})


def test_warm_up_is_a_ramp() -> None:
    assert [warm_up(step, 3) for step in range(5)] == [1 / 3, 2 / 3, 1.0, 1.0, 1.0]
    assert [warm_up(step, 0) for step in (None, 0, 7)] == [1.0, 1.0, 1.0]
    assert [warm_up(step, 1) for step in (0, 1)] == [1.0, 1.0]
    close(warm_up(torch.arange(5), 3), torch.tensor([1 / 3, 2 / 3, 1.0, 1.0, 1.0]), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_evidence_is_annealed_by_epochs_as_in_the_authors_code(as_tensor: bool) -> None:
    """28 steps an epoch and ten epochs: min(1, epoch / 10), and 0 in the first epoch."""
    stairs, ramp = Evidential(9, annealing_steps=280, annealing_every=28), Evidential(9, annealing_steps=280)
    none, net, labels = Evidential(9, annealing_steps=0, annealing_every=28), plain_net(), torch.arange(BATCH) % 3

    def weight(objective: Evidential, step: int | None) -> float:
        at = torch.tensor(step) if as_tensor and step is not None else step
        return float(objective(net, inputs(), labels, step=at).kl_weight)

    steps = range(320)
    assert [weight(stairs, step) for step in steps] == pytest.approx([min(1, (step // 28) / 10) for step in steps])
    assert [weight(ramp, step) for step in steps] == pytest.approx([min(1, (step + 1) / 280) for step in steps])
    assert weight(stairs, None) == weight(none, 0) == 1.0
    assert "every=28" in repr(stairs)


# --- what is refused ---


@pytest.mark.parametrize(
    "objective", [CrossEntropy(9), CrossEntropy(9, shells()), Evidential(9)], ids=["plain", "summary", "evidential"]
)
def test_plain_objectives_refuse_bayesian_networks(objective) -> None:
    with pytest.raises(ValueError, match=r"is for deterministic networks, but `model` is Bayesian: use selbo.ELBO"):
        objective(to_bayesian(plain_net()), inputs(), torch.arange(BATCH) % 3)


@pytest.mark.parametrize("objective", [ELBO(9), SummaryELBO(shells(), 9)], ids=["elbo", "summary elbo"])
def test_bayesian_objectives_refuse_plain_networks(objective) -> None:
    with pytest.raises(
        ValueError, match=r"is for Bayesian networks, but `model` is deterministic: convert it with selbo"
    ):
        objective(plain_net(), inputs(), torch.arange(BATCH) % 3)


@every
def test_bad_labels_are_refused(case: Case) -> None:
    model, objective, x = case.net(), case.objective(), inputs()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.bool, torch.complex64, torch.complex128):
        with pytest.raises(ValueError, match=r"`labels` must hold classes as whole numbers, but got torch\."):
            objective(model, x, torch.zeros(BATCH, dtype=dtype))
    for rows, shape in [(BATCH, (BATCH, 1)), (BATCH, (BATCH - 1,)), (BATCH, ()), (0, (0,)), (BATCH, (BATCH, 3))]:
        with pytest.raises(ValueError, match=r"`labels` must have shape \(B,\) for `inputs` of shape \(B, ...\)"):
            objective(model, x[:rows], torch.zeros(shape, dtype=torch.long))


@every
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_labels_of_any_whole_type_will_do(case: Case, dtype: torch.dtype) -> None:
    model = case.net()
    terms = case.objective()(model, inputs(), case.labels().to(dtype), 3, generator=noise())
    assert torch.equal(terms.loss, terms_of(case, model).loss)


@shared_draws
def test_a_weight_counts_an_example_as_often_as_it_says(case: Case) -> None:
    model, objective = case.net(), case.objective()
    counts = torch.arange(BATCH) % 4
    rows = torch.arange(BATCH).repeat_interleave(counts)
    weights = counts / counts.double().mean()
    weighted = terms_of(case, model, objective, weights=weights)
    repeated = objective(model, inputs()[rows], case.labels()[rows], 3, generator=noise())
    for name in PARTS:
        close(part(weighted, name), part(repeated, name))
    assert (weighted.log_likelihood - terms_of(case, model, objective).log_likelihood).abs() > 1e-3


@with_summary
def test_weights_do_not_speak_of_unlabelled_inputs(case: Case) -> None:
    model, objective = case.net(), case.objective()
    weights = torch.arange(BATCH) / 5.5
    weighted = terms_of(case, model, objective, weights=weights, unlabelled=inputs(9, 7))
    assert torch.equal(further(weighted), further(terms_of(case, model, objective, unlabelled=inputs(9, 7))))


@every
def test_bad_weights_are_refused(case: Case) -> None:
    with pytest.raises(ValueError, match=r"`weights` must have shape \(12,\), one weight per example, but got \(3,\)"):
        terms_of(case, case.net(), weights=torch.ones(3))
    with pytest.raises(ValueError, match=r"`weights` must be a floating-point tensor, but got dtype torch\.int64"):
        terms_of(case, case.net(), weights=torch.ones(BATCH, dtype=torch.long))


@every
def test_bad_numbers_of_data_and_draws_are_refused(case: Case) -> None:
    for number in (0, -3, 2.5, "10", None, True):
        with pytest.raises(ValueError, match=r"`num_data` must be a whole number of at least 1, but got"):
            case.objective(number)
    for number in (0, -1, 1.5):
        with pytest.raises(ValueError, match=r"`num_samples` must be a whole number of at least 1, but got"):
            case.objective()(case.net(), inputs(), case.labels(), number)


@pytest.mark.parametrize("make", [ELBO, lambda n, **options: SummaryELBO(shells(), n, **options)])
def test_bad_settings_are_refused(make) -> None:
    for name in ("kl_weight", "summary_weight"):
        if name == "summary_weight" and make is ELBO:
            continue
        for value in (-0.1, float("inf"), float("nan"), "1"):
            with pytest.raises(ValueError, match=f"`{name}` must be a "):
                make(9, **{name: value})
    for value in (-1, 0.5):
        with pytest.raises(ValueError, match=r"`kl_warmup` must be a whole number of at least 0, but got"):
            make(9, kl_warmup=value)
    with pytest.raises(ValueError, match=r"`estimator` must be one of \['flipout', 'local', 'shared'\], but got 'x'"):
        make(9, estimator="x")


def test_a_bad_warm_up_of_the_summary_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`summary_warmup` must be a whole number of at least 0, but got -1"):
        SummaryELBO(shells(), 9, summary_warmup=-1)


@pytest.mark.parametrize("epsilon", [-0.1, 1.0, 1.5, float("nan"), None, "0.1"])
def test_a_bad_epsilon_is_refused(epsilon) -> None:
    with pytest.raises(ValueError, match=r"`epsilon` must be a "):
        LabelSmoothing(epsilon, 9)


def test_bad_evidence_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`loss` must be one of .* but got 'nll'"):
        Evidential(9, loss="nll")
    with pytest.raises(ValueError, match=r"`activation` must be one of .* but got 'tanh'"):
        Evidential(9, activation="tanh")
    with pytest.raises(ValueError, match=r"`annealing_steps` must be a whole number of at least 0, but got -1"):
        Evidential(9, annealing_steps=-1)
    with pytest.raises(ValueError, match=r"`annealing_every` must be a whole number of at least 1, but got 0"):
        Evidential(9, annealing_every=0)


@pytest.mark.parametrize("estimator", ["local", "flipout"])
def test_inputs_with_weights_of_their_own_are_refused_beside_a_summary(estimator: str) -> None:
    with pytest.raises(ValueError, match=rf"'shared' with a summary, .* but got '{estimator}': pass accept_approx"):
        SummaryELBO(shells(), 9, estimator=estimator)
    assert SummaryELBO(shells(), 9, estimator=estimator, accept_approximation=True).estimator == estimator


def test_what_is_no_summary_is_refused() -> None:
    for make in (lambda: SummaryELBO(selbo.Beta(1, 2), 9), lambda: CrossEntropy(9, selbo.Beta(1, 2))):
        with pytest.raises(ValueError, match=r"`summary` must be a selbo.SummaryLikelihood, .* but got Beta"):
            make()


@pytest.mark.parametrize("net", [nn.Flatten(0), nn.Linear(4, 1).double(), nn.Unflatten(1, (2, 2))])
def test_outputs_that_are_no_logits_are_refused(net: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"`model` must return logits of shape \(B, K\) for at least two classes"):
        CrossEntropy(9)(net, inputs(), torch.zeros(BATCH, dtype=torch.long))

"""Several summaries at once: each with inputs of its own, all under the same weight draws, and their terms add up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from unit.objectives.cases import BATCH, F64, FEATURES, NUM_DATA, inputs, noise, plain_net

import selbo
from selbo.nn import to_bayesian
from selbo.nn.gaussian import gaussians
from selbo.objectives import ELBO, CrossEntropy, Objective, SummaryELBO, Terms
from selbo.objectives.unlabelled import Assigned, assign
from selbo.posteriors import forward_samples

EXACT = {"rtol": 1e-11, "atol": 1e-11}
DRAWS = 3
LABELS = (torch.arange(BATCH) ** 2) % 3


def fractions(**options: object) -> selbo.SummaryLikelihood:
    belief = selbo.Masses([0.2, 0.5, 0.3])
    return selbo.SummaryLikelihood(selbo.ClassRegions(3), belief, 40.0, name="fractions", **options)


def confidence(name: str | None = "confidence", **options: object) -> selbo.SummaryLikelihood:
    belief = selbo.Masses([0.5, 0.3, 0.2])
    return selbo.SummaryLikelihood(selbo.ConfidenceBins([0.5, 0.8], 3), belief, 15.0, name=name, **options)


def shells() -> selbo.SummaryLikelihood:
    return selbo.SummaryLikelihood(selbo.CornerShells(3, [0.6]), selbo.Dirichlet([0.6, 0.9, 1.4]), 20.0, name="shells")


def here() -> Tensor:
    return 2 * inputs(8, count=7)


def there() -> Tensor:
    return inputs(9, count=5) - 1


def terms_of(objective: Objective, model: nn.Module, **options: object) -> Terms:
    return objective(model, inputs(), LABELS, DRAWS, generator=noise(), **options)


def bayesian_and_plain() -> list[tuple[nn.Module, Callable[[object], Objective]]]:
    return [
        (to_bayesian(plain_net(), init_std=0.2), lambda summary: SummaryELBO(summary, NUM_DATA)),
        (plain_net(), lambda summary: CrossEntropy(NUM_DATA, summary)),
    ]


def log_probs(model: nn.Module, at: Tensor) -> Tensor:
    """Under the draws that `terms_of` has."""
    logits = forward_samples(model, at, DRAWS, generator=noise()) if gaussians(model) else model(at)[None]
    return logits.log_softmax(-1)


@pytest.mark.parametrize("kind", [0, 1], ids=["Bayesian", "plain"])
def test_each_summary_looks_at_its_own_inputs_under_the_same_draws(kind: int) -> None:
    model, make = bayesian_and_plain()[kind]
    summaries = [fractions(), confidence(), shells()]
    terms = terms_of(make(summaries), model, unlabelled={"fractions": here(), "shells": there()})
    seen = {"fractions": here(), "confidence": inputs(), "shells": there()}
    assert list(terms.by_name) == [f"log_summary/{name}" for name in seen]
    for summary in summaries:
        expected = summary(log_probs(model, seen[summary.name])).mean()
        torch.testing.assert_close(terms.by_name[f"log_summary/{summary.name}"], expected, **EXACT)
    torch.testing.assert_close(terms.log_summary, sum(terms.by_name.values()), **EXACT)
    alone = terms_of(make(fractions()), model)
    torch.testing.assert_close(terms.log_likelihood, alone.log_likelihood, **EXACT)  # the labels know nothing of it
    torch.testing.assert_close(terms.kl, alone.kl, **EXACT)


@pytest.mark.parametrize("kind", [0, 1], ids=["Bayesian", "plain"])
@pytest.mark.parametrize("settings", [{}, {"ema_decay": 0.9}], ids=str)
def test_terms_and_gradients_add_up(kind: int, settings: dict[str, object]) -> None:
    model, make = bayesian_and_plain()[kind]
    parameters = list(model.parameters())

    def gradient(summary: object) -> tuple[Tensor, tuple[Tensor, ...]]:
        terms = terms_of(make(summary), model, unlabelled=here())
        return terms.log_summary, torch.autograd.grad(terms.log_summary, parameters, allow_unused=True)

    one, by_one = gradient(fractions(**settings))
    two, by_two = gradient(confidence(**settings))
    both, by_both = gradient([fractions(**settings), confidence(**settings)])
    torch.testing.assert_close(both, one + two, **EXACT)
    for first, second, together in zip(by_one, by_two, by_both, strict=True):
        torch.testing.assert_close(together, first + second, **EXACT)


def test_one_in_a_list_is_one() -> None:
    model = to_bayesian(plain_net(), init_std=0.2)
    listed, alone = SummaryELBO([confidence()], NUM_DATA), SummaryELBO(confidence(), NUM_DATA)
    assert torch.equal(terms_of(listed, model).loss, terms_of(alone, model).loss)
    assert list(terms_of(listed, model).named()) == ["loss", "log_likelihood", "kl", "log_summary"]
    assert alone.names == listed.names == ("confidence",)


def test_several_are_logged_one_by_one() -> None:
    objective = SummaryELBO([fractions(), confidence(name=None)], NUM_DATA)
    named = terms_of(objective, to_bayesian(plain_net())).named()
    assert tuple(named) == objective.term_names
    assert list(named)[4:] == ["log_summary/fractions", "log_summary/1"]  # the second is called by its number
    torch.testing.assert_close(named["log_summary"], named["log_summary/fractions"] + named["log_summary/1"], **EXACT)
    assert not any(value.requires_grad for value in named.values())
    assert "name='fractions'" in str(objective)


def test_a_shared_tensor_goes_through_the_network_once() -> None:
    rows = []

    class Counting(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            rows.append(len(x))
            return super().forward(x)

    with torch.random.fork_rng():
        net = Counting(FEATURES, 3).double()
    summaries, shared = [fractions(), confidence(), shells()], here()
    objective = CrossEntropy(NUM_DATA, summaries)
    cases = {
        "one tensor": (shared, BATCH + 7),
        "the same in a list": ([shared, shared, shared], BATCH + 7),
        "another": ([shared, there(), shared], BATCH + 7 + 5),
        "by name": ({"shells": shared}, BATCH + 7),
        "none": (None, BATCH),
    }
    for unlabelled, expected in cases.values():
        rows.clear()
        terms_of(objective, net, unlabelled=unlabelled)
        assert rows == [expected]


def test_gradients_come_from_unlabelled_inputs_through_the_summary_alone() -> None:
    """The derivative of each term by the inputs themselves says what the term looks at."""
    model, objective = to_bayesian(plain_net(), init_std=0.2), SummaryELBO([fractions(), confidence()], NUM_DATA)
    given, others = inputs().requires_grad_(), here().requires_grad_()
    terms = objective(model, given, LABELS, DRAWS, generator=noise(), unlabelled=others)
    of_labels = torch.autograd.grad(terms.log_likelihood, [given, others], retain_graph=True, allow_unused=True)
    assert (of_labels[0] != 0).any(1).all()
    assert of_labels[1] is None or not of_labels[1].any()
    for value in terms.by_name.values():
        of_training, of_others = torch.autograd.grad(value, [given, others], retain_graph=True, allow_unused=True)
        assert of_training is None or not of_training.any()
        assert (of_others != 0).any(1).all()
    assert not terms.kl.isnan()


def test_no_weight_on_the_summary_is_no_summary() -> None:
    model = to_bayesian(plain_net(), init_std=0.2)
    parameters = list(model.parameters())
    without = SummaryELBO([fractions(), confidence()], NUM_DATA, summary_weight=0.0)
    loss = terms_of(without, model, unlabelled=here()).loss
    expected = terms_of(ELBO(NUM_DATA), model).loss
    torch.testing.assert_close(loss, expected, **EXACT)
    for got, wanted in zip(*(torch.autograd.grad(each, parameters) for each in (loss, expected)), strict=True):
        torch.testing.assert_close(got, wanted, **EXACT)


def test_a_step_can_be_traced() -> None:
    """As the engine for CUDA does it: the tensors as a list, who looks at which as constants."""
    model = to_bayesian(plain_net(), init_std=1e-9)
    objective = SummaryELBO([fractions(), confidence(), shells()], NUM_DATA, summary_warmup=8)

    def loss(x: Tensor, y: Tensor, others: list[Tensor], step: Tensor) -> tuple[Tensor, ...]:
        assigned = Assigned(tuple(others), (1, None, 0))
        terms = objective(model, x, y, 2, unlabelled=assigned, step=step)
        return terms.loss, *terms.named().values()

    arguments = (inputs(), LABELS, [here(), there()], torch.tensor(3))
    with torch.random.fork_rng():
        found = torch.compile(loss, backend="eager", fullgraph=True, dynamic=False)(*arguments)
        expected = loss(*arguments)
    assert len(found) == 1 + len(objective.term_names)
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


def test_who_looks_at_which() -> None:
    one, two, names = torch.zeros(2, 1), torch.ones(3, 1), ("a", "b", "c")
    assert assign(None, names) == ((), (None, None, None))
    assert assign(one, names) == ((one,), (0, 0, 0))
    found = assign([two, None, one], names)
    assert found.which == (0, None, 1)
    assert found.tensors[0] is two
    assert assign({"c": one, "b": None}, names).which == (None, None, 0)
    assert assign(found, names) is found
    assert assign([one.clone(), one], ("a", "b")).which == (0, 1)  # equal, but not the same
    assert assign(None, ()) == ((), ())


BAD_INPUTS = {
    "an unknown name": (
        {"fractoins": here()},
        r"must name terms or their inputs, \['fractions', 'confidence'\], but got 'frac",
    ),
    "too few": ([here()], r"must have one entry per term, 2 \(None for the training inputs\), but got 1"),
    "no tensor": ([here(), 3.0], r"must be a tensor of inputs, shape \(U, ...\) with U at least 1, .* but got float"),
    "a word": ("somewhere", "must be a tensor of inputs, .* but got str"),
    "empty": ({"fractions": here()[:0]}, r"with U at least 1, or one per term, but got shape \(0, 4\)"),
    "another shape": ([here(), torch.ones(3, 5, dtype=F64)], r"its entries of the shape .* but got \(3, 5\)"),
    "another type": (
        [here(), torch.ones(3, 4)],
        r"but got \(3, 4\) of torch.float32 beside \(12, 4\) of torch.float64",
    ),
}


@pytest.mark.parametrize(("unlabelled", "message"), BAD_INPUTS.values(), ids=BAD_INPUTS.keys())
def test_bad_inputs_are_refused(unlabelled: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"`unlabelled` .*{message}"):
        terms_of(SummaryELBO([fractions(), confidence()], NUM_DATA), to_bayesian(plain_net()), unlabelled=unlabelled)


TWICE = confidence()
BAD_SUMMARIES = {
    "none": ([], "`summary` must hold at least one selbo.SummaryLikelihood, but the list is empty"),
    "a belief": ([fractions(), selbo.Beta(1, 2)], r"`summary` must be a selbo.SummaryLikelihood, .* but got Beta"),
    "a number": (3, r"`summary` must be a selbo.SummaryLikelihood, or several in a list, but got int"),
    "the same": ([TWICE, TWICE], "each summary must be used once, but one of them is used twice"),
    "the same name": (
        [fractions(), confidence("fractions")],
        "terms must have different names, but two are called 'fractions'",
    ),
    "a number as a name": (
        [confidence("1"), confidence(None)],
        "terms must have different names, but two are called '1'",
    ),
    "other classes": (
        [fractions(), selbo.SummaryLikelihood(selbo.ScoreBins([0.5]), selbo.Uniform())],
        r"summaries must have the same number of classes, but got \[2, 3\]",
    ),
}


@pytest.mark.parametrize(("summary", "message"), BAD_SUMMARIES.values(), ids=BAD_SUMMARIES.keys())
@pytest.mark.parametrize("make", [SummaryELBO, lambda summary, n: CrossEntropy(n, summary)], ids=["ELBO", "plain"])
def test_bad_summaries_are_refused(make: Callable[..., Objective], summary: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(summary, NUM_DATA)


def test_a_summary_elbo_needs_a_summary() -> None:
    with pytest.raises(ValueError, match=r"`summary` must be a selbo.SummaryLikelihood, .* but got NoneType"):
        SummaryELBO(None, NUM_DATA)
    with pytest.raises(ValueError, match="`name` must be a non-empty string, but got ''"):
        confidence("")

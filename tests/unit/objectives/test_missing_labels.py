"""Objectives without labels, or with few: only labelled examples count, and beliefs about groups teach the rest."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from unit.objectives.cases import BATCH, NUM_DATA, inputs, noise, plain_net, shells

import selbo
from selbo.objectives import (
    ELBO,
    CrossEntropy,
    EntropyMinimisation,
    Evidential,
    ExpectationRegularisation,
    Grouped,
    LabelSmoothing,
    Objective,
    SummaryELBO,
    Term,
)

F64 = torch.float64
LABELS = (torch.arange(BATCH) ** 2) % 3
KNOWN = torch.arange(BATCH) % 3 != 1
PARTLY = torch.where(KNOWN, LABELS, -1)
GROUPS = torch.arange(BATCH) % 4 - 1  # three groups, and none
FRACTIONS = [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.3, 0.3, 0.4]]


def grouped(**options: object) -> selbo.GroupedSummary:
    return selbo.GroupedSummary(selbo.ClassRegions(3), FRACTIONS, 25.0, **options)


def nothing(log_probs: Tensor, weights: Tensor | None) -> Tensor:
    """A further term without effect, so that labels may be missing."""
    return 0.0 * log_probs.sum((-1, -2))


OBJECTIVES = {
    "composed": (False, lambda: Objective(NUM_DATA, terms=[Term(nothing)])),
    "summary": (False, lambda: CrossEntropy(NUM_DATA, shells())),
    "groups": (False, lambda: CrossEntropy(NUM_DATA, grouped())),
    "label smoothing": (False, lambda: LabelSmoothing(0.1, NUM_DATA, terms=[Term(nothing)])),
    "evidential": (False, lambda: Evidential(NUM_DATA, terms=[Term(nothing)])),
    "entropy": (False, lambda: EntropyMinimisation(NUM_DATA)),
    "class fractions": (False, lambda: ExpectationRegularisation([0.5, 0.2, 0.3], NUM_DATA)),
    "ELBO": (True, lambda: ELBO(NUM_DATA, terms=[Term(nothing)])),
    "Summary ELBO": (True, lambda: SummaryELBO([grouped(name="states"), shells()], NUM_DATA)),
}


def net(*, bayesian: bool) -> nn.Module:
    plain = plain_net()
    return selbo.to_bayesian(plain, init_std=0.2) if bayesian else plain


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("weighted", [False, True])
def test_only_labelled_examples_count(name, weighted):
    """The likelihood of the labelled ones alone, N/B times: a batch of all labels has B/n times as much per label."""
    bayesian, make = OBJECTIVES[name]
    model, objective = net(bayesian=bayesian), make()
    weights = torch.linspace(0.5, 1.5, BATCH, dtype=F64) if weighted else None
    options = {"groups": GROUPS, "weights": weights}
    terms = objective(model, inputs(), PARTLY, 2, generator=noise(), **options)
    options = {"groups": GROUPS[KNOWN], "weights": None if weights is None else weights[KNOWN]}
    alone = objective(model, inputs()[KNOWN], LABELS[KNOWN], 2, generator=noise(), **options)
    share = KNOWN.double().mean()
    torch.testing.assert_close(terms.log_likelihood, share * alone.log_likelihood)
    if name == "evidential":
        torch.testing.assert_close(terms.kl, share * alone.kl)
    else:
        torch.testing.assert_close(terms.kl, alone.kl)
    whole = objective(model, inputs(), LABELS, 2, generator=noise(), groups=GROUPS, weights=weights)
    for key, value in whole.by_name.items():  # which need no labels
        torch.testing.assert_close(terms.by_name[key], value)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_without_labels_there_is_no_likelihood(name):
    bayesian, make = OBJECTIVES[name]
    model, objective = net(bayesian=bayesian), make()
    terms = objective(model, inputs(), None, 2, generator=noise(), groups=GROUPS)
    missing = objective(model, inputs(), torch.full((BATCH,), -1), 2, generator=noise(), groups=GROUPS)
    assert terms.log_likelihood == missing.log_likelihood == 0
    for key, value in missing.named().items():
        torch.testing.assert_close(terms.named()[key], value)
    terms.loss.backward()
    again = net(bayesian=bayesian)
    objective(again, inputs(), torch.full((BATCH,), -1), 2, generator=noise(), groups=GROUPS).loss.backward()
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_batches_estimate_the_likelihood_of_all_labels():
    """Every batch of four of the twelve examples: their mean is the value of the whole data set."""
    model, objective = net(bayesian=False), CrossEntropy(BATCH, grouped(sizes=[3, 3, 3]))
    whole = objective(model, inputs(), PARTLY, groups=GROUPS)
    order = torch.randperm(BATCH, generator=noise())
    parts = [objective(model, inputs()[rows], PARTLY[rows], groups=GROUPS[rows]) for rows in order.split(4)]
    mean = torch.stack([each.log_likelihood for each in parts]).mean()
    torch.testing.assert_close(mean, whole.log_likelihood)


def test_an_objective_without_further_terms_needs_labels():
    model = net(bayesian=False)
    with pytest.raises(ValueError, match="`labels` must be given, because CrossEntropy has no further term here"):
        CrossEntropy(NUM_DATA)(model, inputs(), None)
    with pytest.raises(
        ValueError, match="`labels` must be classes from 0 to 2, as the model has 3 outputs, but got -1"
    ):
        CrossEntropy(NUM_DATA)(model, inputs(), PARTLY)
    with pytest.raises(ValueError, match="`labels` must be classes from 0, or -1 for none, but got -2"):
        CrossEntropy(NUM_DATA, shells())(model, inputs(), PARTLY - 1)


def test_the_term_is_the_summary_of_the_predictions():
    model, summary = net(bayesian=False), grouped()
    terms = CrossEntropy(NUM_DATA, summary)(model, inputs(), None, groups=GROUPS)
    expected = summary(model(inputs()).log_softmax(-1), GROUPS)
    torch.testing.assert_close(terms.log_summary, expected)
    torch.testing.assert_close(terms.loss, -expected / NUM_DATA)


def test_unlabelled_inputs_with_groups():
    """Few labelled examples, and many others of which only the group is known."""
    model, summary = net(bayesian=False), grouped()
    others = inputs(seed=9, count=20)
    groups = torch.arange(20) % 3
    unlabelled = Grouped(others, groups)
    terms = CrossEntropy(NUM_DATA, summary)(model, inputs(), LABELS, unlabelled=unlabelled)
    torch.testing.assert_close(terms.log_summary, summary(model(others).log_softmax(-1), groups))
    both = SummaryELBO([grouped(name="states"), shells()], NUM_DATA)
    bnn = net(bayesian=True)
    shared = both(bnn, inputs(), LABELS, 2, unlabelled=unlabelled, generator=noise())
    named = both(bnn, inputs(), LABELS, 2, unlabelled={"states": unlabelled, "1": unlabelled}, generator=noise())
    torch.testing.assert_close(shared.loss, named.loss)


def test_groups_must_be_known():
    objective = CrossEntropy(NUM_DATA, grouped())
    with pytest.raises(ValueError, match="the term 'log_summary' needs the group of each input: pass `groups`, or"):
        objective(net(bayesian=False), inputs(), LABELS)
    with pytest.raises(ValueError, match="needs the group of each input"):
        objective(net(bayesian=False), inputs(), LABELS, groups=GROUPS, unlabelled=inputs(seed=9))
    with pytest.raises(ValueError, match=r"`groups` must have shape \(12,\), one group per input, but got \(5,\)"):
        objective(net(bayesian=False), inputs(), LABELS, groups=GROUPS[:5])
    with pytest.raises(ValueError, match=r"`groups` must hold groups as whole numbers, but got torch.float32"):
        objective(net(bayesian=False), inputs(), LABELS, groups=GROUPS.float())


def test_a_term_of_ones_own_can_take_groups():
    class Spread:
        """The variance of the mean predictions of groups."""

        takes_groups = True
        __name__ = "spread"

        def __call__(self, log_probs: Tensor, groups: Tensor, weights: Tensor | None) -> Tensor:
            means = torch.stack([log_probs.exp()[:, groups == g].mean(1) for g in range(3)], 1)
            return means.var(1).sum(-1)

    model = net(bayesian=False)
    terms = Objective(NUM_DATA, terms=[Term(Spread())])(model, inputs(), None, groups=GROUPS)
    p = model(inputs()).softmax(-1)
    expected = torch.stack([p[g == GROUPS].mean(0) for g in range(3)]).var(0).sum()
    torch.testing.assert_close(terms.by_name["spread"], expected)


def weights_at(objective: Objective, labels: Tensor | None, step: int) -> list[float]:
    terms = objective(net(bayesian=False), inputs(), labels, groups=GROUPS, step=step, steps=100)
    return [float(each) for each in terms.weights.values()]


def test_beliefs_about_groups_do_not_wait_and_others_wait_for_them():
    both = lambda: CrossEntropy(NUM_DATA, [grouped(name="states"), shells()])  # noqa: E731
    assert weights_at(both(), None, 0) == weights_at(both(), PARTLY, 0) == [1.0, 0.0]
    assert weights_at(both(), None, 90) == [1.0, 1.0]
    assert weights_at(CrossEntropy(NUM_DATA, shells()), None, 0) == [1.0]  # there is nothing to wait for
    assert weights_at(CrossEntropy(NUM_DATA, shells()), PARTLY, 0) == [0.0]
    assert weights_at(CrossEntropy(NUM_DATA, grouped(), summary_warmup=10), None, 0) == [pytest.approx(0.1)]

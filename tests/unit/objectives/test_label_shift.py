"""Labels of a place with other class fractions: what the network is trained on, and what summaries see."""

import pytest
import torch
from unit.objectives.cases import further

import selbo
from selbo.evaluation.label_shift import correct_prior
from selbo.objectives import ExpectationRegularisation, LabelShift

SHIFT = LabelShift(before=[0.9, 0.1], after=[0.5, 0.5])


def test_predictions_are_corrected_by_bayes_rule() -> None:
    generator = torch.Generator().manual_seed(0)
    likelihoods = torch.rand(50, 3, generator=generator, dtype=torch.float64)  # p(x | y), alike in both places
    before, after = torch.tensor([0.6, 0.3, 0.1]).double(), torch.tensor([0.2, 0.3, 0.5]).double()

    def posterior(fractions: torch.Tensor) -> torch.Tensor:
        return (likelihoods * fractions) / (likelihoods * fractions).sum(-1, keepdim=True)

    found = LabelShift(before.tolist(), after.tolist()).to_target(posterior(before).log())
    torch.testing.assert_close(found.exp(), posterior(after))
    torch.testing.assert_close(found, correct_prior(posterior(before).log(), before.tolist(), after.tolist()))


def test_fractions_of_labels_are_counted() -> None:
    labels = torch.tensor([0, 0, 0, 1])
    assert LabelShift.from_labels(labels, [0.5, 0.5]).before == (0.75, 0.25)
    assert LabelShift.from_labels(labels, [0.5, 0.5], weights=torch.tensor([1.0, 1, 1, 3])).before == (0.5, 0.5)
    rare = LabelShift.from_labels(labels, [0.4, 0.4, 0.2]).before
    assert rare == pytest.approx((3 / 4.5, 1 / 4.5, 0.5 / 4.5)), "a class without a label is not impossible"


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(ValueError, match="hold 2 and 3"):
        LabelShift([0.5, 0.5], [0.2, 0.3, 0.5])
    with pytest.raises(ValueError, match="3 of them, but holds 2"):
        LabelShift.from_labels(torch.tensor([0, 2]), [0.5, 0.5])
    with pytest.raises(ValueError, match="3 of them, but holds 2"):
        SHIFT.to_target(torch.zeros(4, 3))


def objectives(shift: LabelShift | None) -> list[selbo.CrossEntropy | ExpectationRegularisation]:
    summary = selbo.SummaryLikelihood(selbo.ClassRegions(2), selbo.Masses([0.5, 0.5]), 100.0)
    return [
        selbo.CrossEntropy(100, summary, label_shift=shift),
        ExpectationRegularisation([0.5, 0.5], 100, label_shift=shift),
    ]


@pytest.mark.parametrize("which", [0, 1])
def test_labels_are_learned_as_they_are_and_summaries_see_the_target_domain(which: int) -> None:
    plain, shifted = objectives(None)[which], objectives(SHIFT)[which]
    logits, labels = torch.tensor([[0.3, -0.2], [1.0, 0.5]]), torch.tensor([0, 1])
    # all unlabelled inputs are predicted with the fractions of the labels: in the target domain, with those there
    elsewhere = torch.tensor([[0.9, 0.1]]).log().expand(8, 2)
    network = torch.nn.Flatten()
    before, after = (each(network, logits, labels, unlabelled=elsewhere) for each in (plain, shifted))
    assert before.log_likelihood == after.log_likelihood
    exact = plain(network, logits, labels, unlabelled=torch.zeros(8, 2))
    torch.testing.assert_close(further(after), further(exact))
    assert further(before) < further(after) - 10
    # about the training inputs nothing is corrected
    assert further(plain(network, logits, labels)) == further(shifted(network, logits, labels))


def test_a_bayesian_network_takes_expectation_regularisation() -> None:
    with torch.random.fork_rng():
        bnn = selbo.to_bayesian(torch.nn.Linear(4, 2))
    objective = ExpectationRegularisation([0.5, 0.5], 100, kl_weight=0.5, label_shift=SHIFT)
    generator = torch.Generator().manual_seed(0)
    terms = objective(bnn, torch.ones(8, 4), torch.arange(8) % 2, 3, unlabelled=torch.ones(5, 4), generator=generator)
    torch.testing.assert_close(terms.elbo, terms.log_likelihood - 0.5 * terms.kl + terms.by_name["class_fractions"])
    assert terms.kl > 0


def test_under_label_shift_training_ends_near_the_fractions_of_the_place_of_use() -> None:
    generator = torch.Generator().manual_seed(0)

    def drawn(zeros: int, ones: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.tensor([0] * zeros + [1] * ones)
        return torch.randn(len(labels), 2, generator=generator) + 1.2 * (2 * labels[:, None] - 1), labels

    (inputs, labels), (pool, _), (later, truth) = drawn(180, 20), drawn(500, 500), drawn(500, 500)
    shift = LabelShift.from_labels(labels, [0.5, 0.5])
    summary = selbo.SummaryLikelihood.for_data(selbo.ClassRegions(2), selbo.Masses([0.5, 0.5]), len(labels))
    nll = {}
    for name, objective in (
        ("labels", selbo.CrossEntropy(len(labels))),
        ("shift", selbo.CrossEntropy(len(labels), summary, label_shift=shift)),
    ):
        network = selbo.models.MLP((2, 2), generator=torch.Generator().manual_seed(1))
        unlabelled = pool if objective.has_summary else None
        selbo.fit(
            network, objective, (inputs, labels), unlabelled=unlabelled, steps=200, learning_rate=0.05, callbacks=()
        )
        log_probs = network(later).log_softmax(-1).detach()
        log_probs = shift.to_target(log_probs) if name == "shift" else log_probs
        nll[name] = selbo.evaluate(log_probs.exp(), truth)["nll"]
        if name == "shift":
            assert log_probs.exp().mean(0)[0].item() == pytest.approx(0.5, abs=0.03)
    assert nll["shift"] < nll["labels"] - 0.1

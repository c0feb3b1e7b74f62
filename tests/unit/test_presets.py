"""Methods by name: what each maximises, and the summary of what was said."""

from __future__ import annotations

import pytest
import torch

import selbo
from selbo.presets import (
    METHODS,
    below_guessing,
    default_concentration,
    objective_for,
    partition_for,
    summary_for,
)
from selbo.summary.elicitation import uncertainty_for


def summary() -> selbo.SummaryLikelihood:
    return summary_for([0.7, 0.3], accuracy=0.9, concentration=12.0)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_objective_that_it_says(name: str) -> None:
    method = METHODS[name]
    objective = objective_for(name, num_data=40, steps=90, summary=summary(), kl_weight=0.3, summary_weight=0.7)
    assert objective.num_data == 40
    assert objective.has_summary == method.believes
    assert (objective.for_bayesian, objective.for_deterministic) in {
        (method.bayesian, not method.bayesian),
        (True, True),
    }
    assert objective.kl.weight == (0.3 if method.bayesian else 1.0)
    assert [term.weight for term in objective.terms] == ([0.7] if method.believes else [])
    assert objective.kl.warmup == (45 if name == "evidential" else 0)
    if method.believes:
        with pytest.raises(ValueError, match=f"`summary` must be given for the method '{name}'"):
            objective_for(name, num_data=40, steps=90)


def test_regions_suit_the_number_of_classes() -> None:
    kinds = {count: type(partition_for(count)) for count in (2, 3, 20, 21)}
    assert kinds == {2: selbo.ScoreBins, 3: selbo.CornerShells, 20: selbo.CornerShells, 21: selbo.ConfidenceBins}


def test_what_was_said_becomes_a_summary() -> None:
    said = summary()
    torch.testing.assert_close(said.s0, selbo.expect(0.9, class_fractions=[0.7, 0.3]).masses(selbo.ScoreBins.equal(10)))
    assert said.concentration.item() == 12.0
    classes = summary_for([0.7, 0.2, 0.1], accuracy=None, concentration=1.0)
    assert isinstance(classes.partition, selbo.ClassRegions)
    assert classes.s0.tolist() == pytest.approx([0.7, 0.2, 0.1])
    own = summary_for(
        [0.7, 0.3], accuracy=None, concentration=1.0, belief=selbo.Beta(2, 5), partition=selbo.ScoreBins([0.4])
    )
    torch.testing.assert_close(own.s0, selbo.Beta(2, 5).masses(selbo.ScoreBins([0.4])))


def test_regions_of_confidence_need_something_said_of_it() -> None:
    with pytest.raises(ValueError, match="`partition` is ScoreBins, but no belief about confidence"):
        summary_for([0.7, 0.3], accuracy=None, concentration=1.0, partition=selbo.ScoreBins([0.4]))


def test_concentration_that_is_not_given_weighs_as_much_as_the_labels_or_a_third_elsewhere() -> None:
    assert [default_concentration(count) for count in (20, 999.5, 1000, 1001, 50_000)] == [20, 999.5, 1000, 1000, 1000]
    assert [default_concentration(count, elsewhere=True) for count in (20, 1000, 50_000)] == [6, 300, 15_000]


def test_fractions_may_be_off_by_a_little_but_never_more_than_half_of_a_class() -> None:
    assert uncertainty_for([0.5, 0.5]) == uncertainty_for([0.9, 0.1]) == 0.05
    assert uncertainty_for([0.96, 0.04]) == 0.02
    assert uncertainty_for([0.01] * 100) == 0.005
    belief = summary_for([0.7, 0.3], accuracy=None, concentration=1.0, fraction_uncertainty=0.1).belief
    assert isinstance(belief, selbo.Masses)
    assert belief.uncertainty == 0.1


@pytest.mark.parametrize("name", [name for name, each in METHODS.items() if each.believes])
def test_a_label_shift_reaches_the_objective(name: str) -> None:
    shift = selbo.LabelShift([0.9, 0.1], [0.5, 0.5])
    objective = objective_for(name, num_data=40, steps=90, summary=summary(), label_shift=shift)
    assert objective.label_shift == shift


def test_an_accuracy_that_a_constant_answer_reaches_is_told() -> None:
    labels = ["a", "b", "c"]
    text = below_guessing(0.6, [0.1, 0.7, 0.2], labels)
    assert text.startswith("Always saying “b” would be right in 70 % of cases, which is no less than the expected")
    assert "accuracy of 60 %" in text
    assert below_guessing(0.7, [0.1, 0.7, 0.2], labels)
    assert not below_guessing(0.71, [0.1, 0.7, 0.2], labels)
    assert not below_guessing(0.66, [0.1, 0.7, 0.2], labels, tolerance=0.05)

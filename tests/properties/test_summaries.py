"""What holds for every belief: masses on the simplex, a finite likelihood and a finite gradient."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from properties.strategies import beliefs, log_probs, partitions, simplex

import selbo

REFUSED = ("puts no mass that float64 can hold", "which can only be found to")


@given(st.data())
def test_masses_are_positive_and_sum_to_one(data: st.DataObject) -> None:
    partition = data.draw(partitions(gap=0.02))
    masses = data.draw(beliefs(partition)).masses(partition)
    assert masses.shape == (partition.num_regions,)
    assert masses.dtype == torch.float64
    assert (masses > 0).all()
    assert abs(masses.sum().item() - 1) < 1e-12


@given(st.data())
def test_an_extreme_belief_has_such_masses_or_is_refused_in_a_sentence(data: st.DataObject) -> None:
    partition = data.draw(partitions())
    size = partition.num_classes
    belief = selbo.Dirichlet(data.draw(st.lists(st.floats(1e-6, 1e6), min_size=size, max_size=size)))
    try:
        masses = belief.masses(partition)
    except ValueError as error:
        assert any(reason in str(error) for reason in REFUSED), error  # noqa: PT017  (either is right)
    else:
        assert (masses > 0).all()
        assert abs(masses.sum().item() - 1) < 1e-12


@given(st.data())
def test_the_likelihood_and_its_gradient_are_finite(data: st.DataObject) -> None:
    partition = data.draw(partitions())
    values = data.draw(simplex(partition.num_regions, smallest=1e-12))
    check_finite(data, partition, selbo.Masses(values, uncertainty=data.draw(st.sampled_from([0.0, 0.01]))))


@given(st.data())
def test_the_likelihood_of_any_belief_and_its_gradient_are_finite(data: st.DataObject) -> None:
    partition = data.draw(partitions(gap=0.02))
    check_finite(data, partition, data.draw(beliefs(partition)))


def check_finite(data: st.DataObject, partition: selbo.Partition, belief: selbo.Belief) -> None:
    form, concentration = data.draw(st.sampled_from(["dirichlet", "multinomial"])), data.draw(st.floats(1e-3, 1e6))
    summary = selbo.SummaryLikelihood(partition, belief, concentration, form=form)
    given_probs = data.draw(log_probs(partition.num_classes)).requires_grad_()
    size = given_probs.shape[-2]
    weights = data.draw(st.none() | st.lists(st.floats(0, 10), min_size=size, max_size=size))
    value = summary(given_probs, None if weights is None else torch.tensor(weights))
    assert value.shape == given_probs.shape[:-2]
    assert value.isfinite().all()
    (gradient,) = torch.autograd.grad(value.sum(), given_probs)
    assert gradient.isfinite().all()

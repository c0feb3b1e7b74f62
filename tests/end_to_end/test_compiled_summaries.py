"""Compiled summaries: the numbers, gradients and averages of eager ones, in a single graph."""

import copy
import shutil

import pytest
import torch
from unit.summary.cases import PARTITIONS, random_log_probs

import selbo


@pytest.fixture(autouse=True)
def _forget():
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch.compile's own doing
@pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, {}) for kind in PARTITIONS), ("shells", {"form": "multinomial"}), ("shells", {"ema_decay": 0.9})],
)
def test_compiles_into_one_graph(kind, options):
    """Every partition; forms and averages, which see only the histogram, on one of them."""
    partition = PARTITIONS[kind]()
    eager = selbo.SummaryLikelihood(partition, selbo.Uniform(), 50.0, **options)
    compiled = torch.compile(copy.deepcopy(eager), fullgraph=True, backend="aot_eager")
    for seed in range(2):
        log_probs = random_log_probs(2, 12, partition.num_classes, seed=seed).requires_grad_()
        expected, value = eager(log_probs), compiled(log_probs)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(
            torch.autograd.grad(value.sum(), log_probs), torch.autograd.grad(expected.sum(), log_probs)
        )
    half = log_probs.detach().to(torch.bfloat16)
    torch.testing.assert_close(compiled(half), eager(half))
    if "ema_decay" in options:
        torch.testing.assert_close(compiled.average.state_dict(), eager.average.state_dict())


@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*TensorFloat32:UserWarning")
def test_a_compiled_moving_average_has_the_right_gradient():
    """The compiler computes the average again for the backward pass: not from the buffer that has changed since."""
    eager = selbo.SummaryLikelihood(selbo.ScoreBins.equal(4), selbo.Beta(2, 2), 50.0, ema_decay=0.5)
    compiled = torch.compile(copy.deepcopy(eager))
    for seed in range(3):
        log_probs = random_log_probs(16, 2, seed=seed).requires_grad_()
        (expected,) = torch.autograd.grad(eager(log_probs), log_probs)
        (found,) = torch.autograd.grad(compiled(log_probs), log_probs)
        torch.testing.assert_close(found, expected)


def test_a_compiled_term_sees_annealing():
    summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(6), selbo.Uniform(), 50.0)
    compiled = torch.compile(summary, fullgraph=True, backend="aot_eager")
    log_probs = random_log_probs(12, 2)
    values = []
    for factor, concentration in ((7.0, 50.0), (1.0, 50.0), (1.0, 500.0)):
        summary.partition.set_slope_factor(factor)
        summary.concentration.fill_(concentration)
        torch.testing.assert_close(compiled(log_probs), summary(log_probs))
        values.append(compiled(log_probs).item())
    assert len(set(values)) == 3

"""Compiled beliefs about groups: the numbers, gradients and averages of eager ones, in a single graph."""

import copy
import shutil

import pytest
import torch
from unit.summary.cases import GROUPS, fractions, predictions

import selbo
from selbo.summary.grouped import GROUP_FORMS

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a C++ compiler on a CPU")


def check_compiled(eager, backend):
    """Values, gradients and moving averages, in one graph for all batches of a shape."""
    torch.compiler.reset()
    compiled = copy.deepcopy(eager)
    function = torch.compile(compiled, fullgraph=True, dynamic=False, backend=backend)
    classes = eager.partition.num_classes
    for step in range(3):
        groups = GROUPS.roll(step)
        groups = torch.where(groups == step, -1, groups)  # other groups, and another number of them
        ours, theirs = (predictions(2, 13, classes, seed=step).requires_grad_() for _ in range(2))
        value, expected = function(ours, groups), eager(theirs, groups)
        torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
        value.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-9)
    if eager.average is not None:
        torch.testing.assert_close(compiled.average.state_dict(), eager.average.state_dict())


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch.compile's own doing
@pytest.mark.parametrize("form", GROUP_FORMS)
@pytest.mark.parametrize(("count", "classes"), [(6, 2), (40, 3)])  # fewer groups than rows, and more
def test_compiles_into_one_graph(form, classes, count):
    options = {"form": form, "sizes": [4] * count, "exact_up_to": 4}
    for decay in (None, 0.8)[: 2 if form == "dirichlet" else 1]:  # an average comes before the form
        partition = selbo.ClassRegions(classes)
        summary = selbo.GroupedSummary(partition, fractions(count, classes), 20.0, ema_decay=decay, **options)
        check_compiled(summary, "aot_eager")


@needs_compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:.*TensorFloat32:UserWarning")
@pytest.mark.parametrize(("form", "decay"), [("dirichlet", 0.5), ("counts", None)])
def test_machine_code(form, decay):
    """The compiler computes the average again for the backward pass: not from the buffer that has changed since."""
    options = {"form": form, "ema_decay": decay, "exact_up_to": 4}
    check_compiled(selbo.GroupedSummary(selbo.ClassRegions(2), fractions(40, 2), 20.0, **options), "inductor")

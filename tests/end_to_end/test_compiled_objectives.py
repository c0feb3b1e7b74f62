"""Compiled objectives: the numbers of eager ones, and code that serves every weight of the KL and of the terms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from unit.objectives.cases import FEATURES, NUM_DATA, plain_net, shells

from selbo.nn import to_bayesian
from selbo.nn.compiled import compile_function
from selbo.objectives import ELBO, KL, ExpectationRegularisation, Objective, SummaryELBO, Term, negative_entropy


class Step:
    """What an engine compiles: a method that reads the objective and the network from its own object."""

    def __init__(self, objective: Objective, backend: Callable[..., object]) -> None:
        self.objective, self.model = objective, to_bayesian(plain_net(), init_std=0.2)
        self.quick = compile_function(self.evaluate, backend=backend)

    def evaluate(self, inputs: Tensor, labels: Tensor, step: Tensor) -> Tensor:
        """The loss under one draw, which is always the same one."""
        return self.objective(self.model, inputs, labels, 1, step=step, steps=torch.tensor(8)).loss


@pytest.fixture(autouse=True)
def _forget() -> None:
    torch.compiler.reset()


@pytest.mark.parametrize(
    "make",
    [
        lambda weight: ELBO(NUM_DATA, kl_weight=weight, kl_warmup=10),
        lambda weight: SummaryELBO(shells(), NUM_DATA, kl_weight=weight),
        lambda weight: SummaryELBO(shells(), NUM_DATA, summary_weight=weight),
        lambda weight: ExpectationRegularisation([0.5, 0.2, 0.3], NUM_DATA, weight, warmup=7),
    ],
    ids=["ELBO with warm-up", "Summary ELBO", "summary", "class fractions"],
)
def test_one_piece_of_code_serves_all_weights(make: Callable[[float], Objective]) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(12, FEATURES, generator=generator, dtype=torch.float64)
    labels, step = torch.randint(3, (12,), generator=generator), torch.tensor(4)
    for weight in (0.25, 2.0):
        objective = make(weight)
        one = Step(objective, backend)
        with torch.random.fork_rng():
            torch.manual_seed(7)
            found = one.quick(inputs, labels, step)
            torch.manual_seed(7)
            expected = one.evaluate(inputs, labels, step)
        torch.testing.assert_close(found, expected)
        found.backward()
        means = [each.grad for name, each in one.model.named_parameters() if "mean" in name]
        assert means
        assert all(each is not None and bool(each.isfinite().all()) for each in means)
    assert len(graphs) == 1


@pytest.mark.parametrize("part", [KL(), Term(negative_entropy)], ids=["KL", "term"])
def test_a_weight_that_is_set_later_counts(part: KL | Term) -> None:
    part.weight = 0.5
    assert part.weight == 0.5
    assert part.factor == 0.5
    assert part.weight_at(None, None) == 0.5
    assert "factor" not in part.state_dict()
    with pytest.raises(ValueError, match="`weight` must be a "):
        part.weight = -1.0

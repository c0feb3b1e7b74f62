"""Learn to classify individuals from the class fractions of groups, without a label."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import selbo

GROUPS, ROWS = 40, 4000


def people(seed: int, *, classes: int = 2) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs, labels, groups and true probabilities; groups differ in their inputs, labels depend on inputs alone."""
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(GROUPS, (2 * ROWS,), generator=generator)
    centres = torch.randn(GROUPS, 4, generator=generator)
    inputs = torch.randn(2 * ROWS, 4, generator=generator) + centres[groups]
    weights = 1.5 * torch.eye(4)[:, :classes]  # the last inputs mean nothing
    probs = (inputs @ weights).softmax(-1)
    labels = torch.multinomial(probs, 1, generator=generator).squeeze(-1)
    return inputs, labels, groups, probs


def fractions_of(labels: Tensor, groups: Tensor, classes: int) -> Tensor:
    one_hot = torch.nn.functional.one_hot(labels, classes).double()
    sums = torch.zeros(GROUPS, classes, dtype=torch.float64).index_add(0, groups, one_hot)
    return sums / sums.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("form", "classes", "options"),
    [
        ("dirichlet", 2, {"smoothing": 0.5}),
        ("multinomial", 3, {}),
        ("multinomial", 2, {"ema_decay": 0.9}),
        ("counts", 2, {}),
        ("counts", 3, {}),
    ],
)
def test_fractions_alone_teach_individuals(form, classes, options, seed):
    inputs, labels, groups, probs = people(seed, classes=classes)
    train, test = slice(ROWS), slice(ROWS, None)
    stated = fractions_of(labels[train], groups[train], classes)
    small = "ema_decay" in options  # groups of a hundred, six at a time
    summary = selbo.GroupedSummary(selbo.ClassRegions(classes), stated, 60.0, form=form, **options)
    network = selbo.models.MLP((4, classes), generator=torch.Generator().manual_seed(seed))
    selbo.fit(
        network,
        selbo.CrossEntropy(ROWS, summary),
        inputs[train],
        groups=groups[train],
        rows_per_group=6 if small else 500,
        batch_size=250 if small else 2000,
        steps=400 if small else 200,
        learning_rate=0.02 if small else 0.05,
        schedule="cosine",
        seed=seed,
        callbacks=(),
    )
    predicted = selbo.predict(network, inputs[test], generator=torch.Generator().manual_seed(0))
    found, best = (selbo.evaluate(each, labels[test]) for each in (predicted.probs, probs[test]))
    rates = (stated + 1e-3) / (stated + 1e-3).sum(-1, keepdim=True)
    group_rate = selbo.evaluate(rates[groups[test]], labels[test])
    assert best["accuracy"] - 0.03 < found["accuracy"]
    assert found["accuracy"] > group_rate["accuracy"] + 0.03
    assert found["nll"] < best["nll"] + 0.4 * (group_rate["nll"] - best["nll"])
    assert found["ece"] < 0.06


def test_a_stated_accuracy_says_how_sure_to_be(seed):
    """Weak fractions leave predictions undecided; a belief about the accuracy beside them does not."""
    inputs, labels, groups, probs = people(seed)
    train, test = slice(ROWS), slice(ROWS, None)
    stated = fractions_of(labels[train], groups[train], 2)
    accuracy = probs.max(-1).values.mean().item()
    scores = {}
    for told in (False, True):
        beliefs: list[selbo.GroupedSummary | selbo.SummaryLikelihood] = [
            selbo.GroupedSummary(selbo.ClassRegions(2), stated, 3.0, form="multinomial", name="states")
        ]
        if told:
            belief = selbo.expect(accuracy=accuracy, class_fractions=stated.mean(0).tolist())
            beliefs.append(selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), belief, 100.0))
        network = selbo.models.MLP((4, 2), generator=torch.Generator().manual_seed(seed))
        options = {"steps": 200, "batch_size": 2000, "learning_rate": 0.05, "callbacks": (), "rows_per_group": 500}
        decay = selbo.training.Optimizer(weight_decay=0.01)  # which makes predictions too undecided
        objective = selbo.CrossEntropy(ROWS, beliefs)
        selbo.fit(network, objective, inputs[train], groups=groups[train], optimizer=decay, seed=seed, **options)
        predicted = selbo.predict(network, inputs[test], generator=torch.Generator().manual_seed(0))
        scores[told] = selbo.evaluate(predicted.probs, labels[test])
    assert scores[True]["ece"] < scores[False]["ece"] - 0.02
    assert scores[True]["nll"] < scores[False]["nll"]

"""Every posterior learns from the class fractions of groups."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from unit.training.toys import blobs, network, summary

import selbo

N, G = 60, 5


INPUTS, LABELS = blobs(N)


FEW = torch.where(torch.arange(N) % 5 == 0, LABELS, -1)


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("mean field", "dirichlet"),
        ("mean field", "counts"),
        ("natural gradient", "multinomial"),
        ("natural gradient", "dirichlet"),
        ("ensemble", "counts"),
    ],
)
@pytest.mark.parametrize("labels", [None, FEW], ids=["none", "few"])
def test_every_posterior(kind, form, labels):
    """Fractions of three groups with other classes each, and an accuracy: the predictions come close to them."""
    groups = (LABELS + (torch.arange(N) % 3 == 0)) % 3
    stated = torch.stack([torch.bincount(LABELS[groups == g], minlength=3) / (groups == g).sum() for g in range(3)])
    beliefs = [
        selbo.GroupedSummary(selbo.ClassRegions(3), stated, 300.0, form=form, smoothing=0.5, name="states"),
        summary(concentration=5.0),
    ]
    options = {"steps": 80, "batch_size": 60, "seed": 0, "callbacks": (), "num_samples": 2}
    if kind == "mean field":
        model = selbo.to_bayesian(network(dropout=0.0), init_std=0.05)
        objective = selbo.SummaryELBO(beliefs, N, kl_weight=0.01)
    elif kind == "natural gradient":
        model, objective = network(dropout=0.0), selbo.SummaryELBO(beliefs, N)
        options["posterior"] = "natural_gradient"
    else:
        model = selbo.posteriors.Ensemble(lambda: nn.Linear(4, 3), 2, seed=1)
        objective = selbo.CrossEntropy(N, beliefs)
    rate = 0.2 if kind == "natural gradient" else 0.02
    result = selbo.fit(model, objective, (INPUTS, labels), groups=groups, learning_rate=rate, **options)
    column = result.terms.index("log_summary/states")
    assert result.curve[-20:, column].mean() > result.curve[:5, column].mean()
    predicted = selbo.predict(result.posterior, INPUTS, num_samples=8, generator=torch.Generator().manual_seed(0))
    assert (predicted.probs.argmax(-1) == LABELS).double().mean() > 0.6  # half are of the most frequent class
    assert bool(result.curve[:, 1].any()) == (labels is not None)
    assert (result.label_check is None) == (labels is None)

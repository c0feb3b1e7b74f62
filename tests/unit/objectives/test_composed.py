"""Objectives that are put together by hand: terms of one's own, their names, weights, warm-up and inputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from unit.objectives.cases import BATCH, F64, FEATURES, NUM_DATA, inputs, noise, plain_net, shells

import selbo
from selbo.nn import to_bayesian
from selbo.objectives import (
    KL,
    Categorical,
    ClassFractions,
    DirichletEvidence,
    EntropyMinimisation,
    Evidential,
    ExpectationRegularisation,
    Objective,
    SmoothedCategorical,
    Term,
    Terms,
    negative_entropy,
)
from selbo.training import Checkpoint, JsonLines, Progress
from selbo.training.callbacks import Start

EXACT = {"rtol": 1e-12, "atol": 1e-12}
LABELS = (torch.arange(BATCH) ** 2) % 3


class Margin(nn.Module):
    """A term that the library does not know: how far the best class is ahead of the second, per sample."""

    def __init__(self, wanted: float) -> None:
        super().__init__()
        self.register_buffer("wanted", torch.tensor(wanted))

    def forward(self, log_probs: Tensor, weights: Tensor | None) -> Tensor:
        best, second = log_probs.exp().topk(2, dim=-1).values.unbind(-1)
        ahead = best - second if weights is None else (best - second) * weights
        return -(ahead.mean(-1) - self.wanted).square()


def coldness(log_probs: Tensor, weights: Tensor | None) -> Tensor:
    """Another one, a plain function."""
    return -log_probs.exp().square().sum(-1).mean(-1)


def terms_of(objective: Objective, model: nn.Module, **options: object) -> Terms:
    return objective(model, inputs(), LABELS, 3, generator=noise(), **options)


# --- terms of one's own ---


@pytest.mark.parametrize("bayesian", [False, True])
def test_terms_of_ones_own_are_weighed_and_added(bayesian: bool) -> None:
    model = to_bayesian(plain_net(), init_std=0.2) if bayesian else plain_net()
    own = [Term(Margin(0.2), 40.0), Term(coldness, 3.0, warmup=4), Term(shells(), 0.5)]
    terms = terms_of(Objective(NUM_DATA, kl=KL(0.3), terms=own), model, step=1, steps=2)
    logits = selbo.forward_samples(model, inputs(), 3, generator=noise()) if bayesian else model(inputs())[None]
    log_probs = logits.log_softmax(-1)
    expected = {
        "Margin": Margin(0.2)(log_probs, None).mean(),
        "coldness": coldness(log_probs, None).mean(),
        "log_summary": shells()(log_probs).mean(),
    }
    assert list(terms.by_name) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(terms.by_name[name], value, **EXACT)
    assert terms.weights == {"Margin": 40.0, "coldness": 1.5, "log_summary": 0.5}
    assert torch.equal(terms.log_summary, terms.by_name["log_summary"])
    total = terms.log_likelihood - 0.3 * terms.kl + sum(terms.weights[name] * expected[name] for name in expected)
    torch.testing.assert_close(terms.elbo, total, **EXACT)
    assert list(terms.named()) == ["loss", "log_likelihood", "kl", "log_summary", "Margin", "coldness"]


@pytest.mark.parametrize("bayesian", [False, True])
def test_a_term_of_ones_own_is_trained_with(bayesian: bool, tmp_path: Path) -> None:
    """Through `fit`, on unlabelled inputs, with a log, and interrupted; without it predictions are surer."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, FEATURES, generator=generator)
    y, clinic = (x[:, 0] > 0).long(), torch.randn(80, FEATURES, generator=generator)

    def run(weight: float, **options: object) -> tuple[selbo.training.trainer.FitResult, float]:
        net: nn.Module = selbo.models.MLP((FEATURES, 8, 2), generator=torch.Generator().manual_seed(1))
        net = to_bayesian(net, init_std=0.05) if bayesian else net
        term = Term(Margin(0.2), weight, inputs="clinic")
        objective = Objective(len(x), kl=KL(0.1), terms=[term])
        result = selbo.fit(
            net,
            objective,
            (x, y),
            unlabelled={"clinic": clinic},
            steps=80,
            learning_rate=0.03,
            **{"callbacks": (), **options},
        )
        probs = selbo.predict(net, clinic, num_samples=8, generator=noise()).probs
        best, second = probs.topk(2, dim=-1).values.unbind(-1)
        return result, (best - second).mean().item()

    log = tmp_path / "log.jsonl"
    result, margin = run(2000.0, callbacks=[JsonLines(log)], log_every=20)
    assert result.terms == ("loss", "log_likelihood", "kl", "log_summary", "Margin")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert all("Margin" in record and record["log_summary"] == 0 for record in records)
    assert abs(margin - 0.2) < 0.1
    assert run(0.0)[1] > margin + 0.2


def test_a_run_with_a_term_of_ones_own_can_be_resumed(tmp_path: Path) -> None:
    x = torch.randn(40, FEATURES, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()

    def run(name: str, weight: float = 5.0, callbacks: tuple[Callable[..., object], ...] = ()) -> nn.Module:
        net = selbo.models.MLP((FEATURES, 2), generator=torch.Generator().manual_seed(1))
        objective = Objective(40, terms=[Term(Margin(0.2), weight)])
        settings = {"steps": 12, "batch_size": 8, "log_every": 4, "callbacks": callbacks}
        selbo.fit(net, objective, (x, y), checkpoint=Checkpoint(tmp_path / name, every=0.0), **settings)
        return net

    def stop(record: dict[str, object]) -> None:
        if record["step"] == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("halted", callbacks=(stop,))
    whole, resumed = run("whole"), run("halted")
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))
    with pytest.raises(ValueError, match=r"belongs to another run: its objective: terms\.0\.factor is 5\.0"):
        run("whole", weight=6.0)


def test_weights_of_examples_reach_terms_on_training_inputs_alone() -> None:
    seen = []

    def look(log_probs: Tensor, weights: Tensor | None) -> Tensor:
        seen.append((tuple(log_probs.shape), weights))
        return log_probs.mean((-2, -1))

    weights = torch.rand(BATCH, generator=noise(), dtype=F64)
    objective = Objective(NUM_DATA, terms=[Term(look, inputs="labelled"), Term(look, name="other", inputs="clinic")])
    terms_of(objective, plain_net(), weights=weights, unlabelled={"clinic": inputs(8, count=7)})
    assert seen[0] == ((1, BATCH, 3), weights)
    assert seen[1] == ((1, 7, 3), None)


# --- what it is composed of ---


def test_the_known_objectives_are_compositions() -> None:
    others = 2 * inputs(8, count=7)
    by_hand = {
        "smoothing": (selbo.LabelSmoothing(0.1, 60, kl_weight=0.3), Objective(60, SmoothedCategorical(0.1), KL(0.3))),
        "evidential": (Evidential(60, annealing_steps=9), Objective(60, DirichletEvidence(), KL(warmup=9))),
        "entropy": (
            EntropyMinimisation(60, 0.3),
            Objective(60, terms=[Term(negative_entropy, 0.3, 0, name="entropy", per_example=True)]),
        ),
        "fractions": (
            ExpectationRegularisation([0.5, 0.2, 0.3], 60, 0.3),
            Objective(60, terms=[Term(ClassFractions([0.5, 0.2, 0.3]), 0.3, 0, per_example=True)]),
        ),
        "summary": (selbo.CrossEntropy(60, shells()), Objective(60, Categorical(), terms=[Term(shells())])),
    }
    for known, composed in by_hand.values():
        given = others if known.has_summary else None
        one, other = (terms_of(each, plain_net(), unlabelled=given, step=3, steps=8) for each in (known, composed))
        assert one == other


def test_terms_that_are_no_summaries_have_names_of_their_own() -> None:
    model, others = plain_net(), inputs(8, count=7)
    for objective, name in [
        (EntropyMinimisation(NUM_DATA), "entropy"),
        (ExpectationRegularisation([0.5, 0.2, 0.3], NUM_DATA), "class_fractions"),
    ]:
        terms = terms_of(objective, model, unlabelled={name: others})
        assert objective.term_names == tuple(terms.named()) == ("loss", "log_likelihood", "kl", "log_summary", name)
        assert terms.log_summary == 0
        assert terms.by_name[name] < 0
        assert not objective.summaries


def test_evidence_and_the_divergence_of_weights_add_up() -> None:
    model = to_bayesian(plain_net(), init_std=0.2)
    terms = terms_of(Objective(NUM_DATA, DirichletEvidence()), model)
    logits = selbo.forward_samples(model, inputs(), 3, generator=noise())
    evidence = NUM_DATA * DirichletEvidence().divergence(logits, LABELS).mean()
    torch.testing.assert_close(terms.kl, selbo.kl_divergence(model) + evidence, **EXACT)


def test_a_term_looks_at_the_inputs_that_it_names() -> None:
    rows = []

    def count(log_probs: Tensor, weights: Tensor | None) -> Tensor:
        rows.append(log_probs.shape[-2])
        return log_probs.mean((-2, -1))

    own = [Term(count, name=name, inputs=of) for name, of in (("a", "labelled"), ("b", "clinic"), ("c", "clinic"))]
    objective, model = Objective(NUM_DATA, terms=[*own, Term(count, name="d")]), plain_net()
    clinic, ward = inputs(8, count=7), inputs(9, count=5)
    cases = {
        "by name": ({"clinic": clinic, "d": ward}, [BATCH, 7, 7, 5]),
        "one tensor": (clinic, [BATCH, 7, 7, 7]),
        "the last at training inputs": ({"clinic": ward}, [BATCH, 5, 5, BATCH]),
        "a list": ([None, clinic, ward, None], [BATCH, 7, 5, BATCH]),
    }
    for given, expected in cases.values():
        rows.clear()
        terms_of(objective, model, unlabelled=given)
        assert rows == expected
    for missing in (None, {"d": ward}, [None, clinic, None, None]):
        with pytest.raises(ValueError, match="`unlabelled` must hold 'clinic', which a term uses, but does not"):
            terms_of(objective, model, unlabelled=missing)
    with pytest.raises(ValueError, match="must be None for a term with inputs='labelled'"):
        terms_of(objective, model, unlabelled=[clinic] * 4)
    with pytest.raises(ValueError, match=r"must name terms or their inputs, \['clinic', 'clinic', 'd'\], but got 'b'"):
        terms_of(objective, model, unlabelled={"b": clinic})


def test_terms_are_on_the_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stderr", shown := StringIO())
    bar = Progress(True)
    bar.on_start(Start(4, 0, ()))
    bar.on_progress(4, {"loss": 0.5, "log_likelihood": -3.0, "log_summary": 0.0, "Margin": 0.25, "val_nll": 0.75})
    bar.on_end()
    assert "loss 0.5 Margin 0.25 val nll 0.75" in " ".join(shown.getvalue().split())


# --- what is refused ---


def test_what_is_no_term_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`terms` must be selbo.objectives.Term, but got SummaryLikelihood"):
        Objective(9, terms=[shells()])
    with pytest.raises(ValueError, match=r"`likelihood` must be selbo.objectives.Categorical, but got KL"):
        Objective(9, KL())
    with pytest.raises(ValueError, match=r"`kl` must be selbo.objectives.KL, but got float"):
        Objective(9, kl=0.3)
    with pytest.raises(ValueError, match=r"`summary` must be callable, .* but got 3"):
        Term(3)
    with pytest.raises(ValueError, match="terms must have different names, but two are called 'coldness'"):
        Objective(9, terms=[Term(coldness), Term(coldness)])
    with pytest.raises(ValueError, match=r"'shared' with a summary, .* but got 'local'"):
        Objective(9, terms=[Term(coldness)], estimator="local")


@pytest.mark.parametrize("name", ["loss", "kl", "log_summary", "log_summary/x", "learning_rate"])
def test_names_of_other_numbers_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"`name` must not be that of another number in the log, but got '{name}'"):
        Term(coldness, name=name)


@pytest.mark.parametrize(
    "answer",
    [lambda p, w: 1.0, lambda p, w: p, lambda p, w: p.mean((0, 1))],
    ids=["a number", "(S, B, K)", "one per class"],
)
def test_an_answer_of_the_wrong_shape_is_refused(answer: Callable[..., object]) -> None:
    objective = Objective(9, terms=[Term(answer, name="odd")])
    with pytest.raises(
        ValueError, match=r"the term 'odd' must return one value per sample, shape \(1,\), but returned"
    ):
        terms_of(objective, plain_net())


@pytest.mark.parametrize("settings", [{"weight": -1.0}, {"warmup": -1}, {"inputs": ""}, {"name": ""}], ids=str)
def test_bad_settings_of_a_term_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(settings))}` must be a "):
        Term(coldness, **settings)

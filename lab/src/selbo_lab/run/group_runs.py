"""Executes a run on data whose class fractions are known by group; settings are chosen without labels."""

import math
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn

from selbo import ClassRegions, ConfidenceBins, GroupedSummary, Prediction, ScoreBins
from selbo.metrics import entropy
from selbo.objectives import log_prob_of_labels
from selbo.posteriors import Posterior
from selbo.random import generator_for
from selbo.report import outcomes
from selbo.training import Diverged
from selbo_lab.run import build
from selbo_lab.run.frozen import calibrate_as_stated
from selbo_lab.run.group_cases import GroupCase, group_case, with_exact_counts, without_groups
from selbo_lab.run.group_methods import group_predictions, train_group_method
from selbo_lab.run.provenance import describe_run
from selbo_lab.run.records import CLEAN, DIVERGED, FINISHED, Run, RunHistogram, RunMeasurement, RunTimes
from selbo_lab.run.scores import score_histogram
from selbo_lab.studies.run_spec import RunSpec

GROUP_PARTS: Final = 3
"""Parts of the groups of a table, each of which is held out once."""

IMAGE_PARTS: Final = 10
"""Parts of the bags of images, of which the first is held out; a network for images is not trained several times."""

MOST_HELD_OUT: Final = 100.0
"""Largest concentration of the fractions of a held-out group, if they are not exact: about plus or minus ten points."""


def execute_group_run(spec: RunSpec, *, device: str = "cpu") -> Run:
    """Train and test; or, if the run does not use test data, measure the likelihood of held-out groups."""
    begin = time.perf_counter()
    case = group_case(spec.data, spec.seed)
    if spec.recipe.exact_counts:
        case = with_exact_counts(case, spec.data)
    made = partial(
        Run,
        id=spec.id,
        spec=spec,
        data={"train": case.train.checksum, "test": case.test.checksum},
        sizes={"train": len(case.train), "groups": len(case.names), "test": len(case.test)},
        made_by=describe_run(device),
    )
    try:
        if not spec.evaluation.test:
            nll = held_out_nll(spec, case, device=device)
            val = RunMeasurement(level=None, metrics={"nll": nll if math.isfinite(nll) else None})
            return made(status=FINISHED, val=val, seconds=RunTimes(all=round(time.perf_counter() - begin, 3)))
        rows = None
        if spec.recipe.calibrated_by_counts:
            rows, network = _trained_without(spec, case, 0, device)
        else:
            network = _train(spec, case, device)
        trained = time.perf_counter()
        log_probs = group_predictions(spec, case, network, case.test.to(device).network_inputs(), case.test_groups)
        if rows is not None:
            held_out = _predictions_for(spec, case, network, rows, device)
            log_probs = calibrate_as_stated(held_out, belief=_counts(spec, case), groups=case.groups[rows])(log_probs)
    except Diverged as error:
        what = str(error).partition(";")[0]
        return made(status=DIVERGED, error=what, seconds=RunTimes(all=round(time.perf_counter() - begin, 3)))
    total = entropy(log_probs=log_probs)
    prediction = Prediction(log_probs.exp(), log_probs, total, total, torch.zeros_like(total))
    found = outcomes.condition(prediction, case.test.labels, level=0.0)
    count = log_probs.shape[1]
    regions = ScoreBins(build.EQUAL_EDGES) if count == 2 else ConfidenceBins(build.STUDY_CONFIDENCE_EDGES, count)
    now = time.perf_counter()
    return made(
        status=FINISHED,
        conditions={CLEAN: RunMeasurement(level=0.0, metrics=found.metrics, recall=found.recall)},
        histogram=RunHistogram(belief=None, masses=outcomes.region_masses(prediction, regions)),
        reliability=outcomes.compute_reliability(prediction, case.test.labels),
        score_histogram=score_histogram(prediction),
        seconds=RunTimes(
            all=round(now - begin, 3), training=round(trained - begin, 3), evaluation=round(now - trained, 3)
        ),
    )


@dataclass
class _LastNetworks:
    """The networks of the last run, by the part of the groups that was held out."""

    training: Hashable = None
    networks: dict[int, nn.Module | Posterior] = field(default_factory=dict)


_LAST: Final = _LastNetworks()
ALL_GROUPS: Final = -1
"""Stands for no part."""


def _train(spec: RunSpec, case: GroupCase, device: str, part: int = ALL_GROUPS) -> nn.Module | Posterior | None:
    """The trained network, or its posterior; that of the last run if only what follows the training differs."""
    if spec.recipe.objective == "group_rate":
        return None
    training = (spec.training, device)
    if training != _LAST.training:
        _LAST.training, _LAST.networks = training, {}
    if part not in _LAST.networks:
        _LAST.networks[part] = train_group_method(spec, case, device=device)
    return _LAST.networks[part]


def parts_of_groups(count: int, parts: int, *, seed: int) -> Tensor:
    """Part of each group, at random and of equal size: (count,)."""
    order = torch.randperm(count, generator=generator_for(seed, "folds"))
    part = torch.empty_like(order)
    part[order] = torch.arange(count) % parts
    return part


def held_out_nll(spec: RunSpec, case: GroupCase, *, device: str = "cpu") -> float:
    """What settings are chosen by: the negative log-likelihood of held-out groups and labels, per group.

    The groups are cut into parts at random. For each part of a table, and for one part of the images, a network is
    trained without its rows. The likelihood is that of the class counts of its groups (the form ``counts`` of
    `GroupedSummary`), given the predictions for their members as they are reported, and of the labels among them that
    are known. It is the same for every method, except that fractions are exact with ``exact_counts``.
    """
    total = 0.0
    predictions = list(held_out_predictions(spec, case, device=device))
    for rows, log_probs in predictions:
        total += _nll_of_part(spec, case, rows, log_probs)
    return total / len(torch.cat([case.groups[rows] for rows, _ in predictions]).unique())


def held_out_predictions(spec: RunSpec, case: GroupCase, *, device: str = "cpu") -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of each part of the groups that is held out, and predictions for them without it: (R,), (R, K)."""
    for number in range(min(GROUP_PARTS if spec.model.name == "mlp" else 1, len(case.names))):
        rows, network = _trained_without(spec, case, number, device)
        yield rows, _predictions_for(spec, case, network, rows, device)


def _trained_without(
    spec: RunSpec, case: GroupCase, number: int, device: str
) -> tuple[Tensor, nn.Module | Posterior | None]:
    """Rows of a part of the groups, and a network that is trained without it."""
    parts = GROUP_PARTS if spec.model.name == "mlp" else IMAGE_PARTS
    held_out = parts_of_groups(len(case.names), parts, seed=spec.seed) == number
    network = _train(spec, without_groups(case, held_out), device, number)
    return torch.cat([held_out, torch.tensor([False])])[case.groups].nonzero().squeeze(1), network


def _predictions_for(
    spec: RunSpec, case: GroupCase, network: nn.Module | Posterior | None, rows: Tensor, device: str
) -> Tensor:
    inputs = case.train.rows(rows).to(device).network_inputs()
    return group_predictions(spec, case, network, inputs, case.groups[rows])


def _counts(spec: RunSpec, case: GroupCase) -> GroupedSummary:
    """The likelihood of the class counts of groups."""
    most = math.inf if spec.recipe.exact_counts else MOST_HELD_OUT
    return GroupedSummary(
        ClassRegions(case.fractions.shape[1]),
        case.fractions,
        case.concentration.clamp(max=most),
        form="counts",
        exact_up_to=spec.recipe.exact_up_to,
    )


def _nll_of_part(spec: RunSpec, case: GroupCase, rows: Tensor, log_probs: Tensor) -> float:
    found: float = _counts(spec, case)(log_probs, case.groups[rows]).item()
    known = torch.isin(rows, case.labelled)
    if bool(known.any()):
        found += log_prob_of_labels(log_probs[known].unsqueeze(0), case.train.labels[rows[known]]).sum().item()
    return -found

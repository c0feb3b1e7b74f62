"""How close a choice of settings by held-out groups comes to one by labels, on the cases of the study `groups`.

    python benchmarks/choose_by_groups.py [--cases voters ...] [--out benchmarks/results/choose_by_groups.json]

Every setting is tested at the seeds of the study; stored runs are not repeated. At the seed of the choice, networks
that are trained without a third of the groups predict its rows, as in the study. Held-out groups choose by the
likelihood of their class counts; labels of these rows choose by their NLL: of all rows, or of a sample of them. The
table is on the page of results (lab/docs/results.py). Finished cases are kept.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from selbo.random import generator_for
from selbo_lab.run import group_runs
from selbo_lab.run.group_cases import group_case, with_exact_counts
from selbo_lab.run.provenance import describe_run
from selbo_lab.run.records import CLEAN
from selbo_lab.run.result_store import Store
from selbo_lab.schedule import runner
from selbo_lab.studies.plan import TUNING_SEED
from selbo_lab.studies.run_spec import EvaluationSpec, RunSpec
from selbo_lab.studies.study import Study, Variant

ROOT = Path(__file__).parent.parent
METHODS = ("exact", "belief-accuracy", "proportion-exact")
PRECISIONS = (1.0, 3.0, 10.0, 30.0)
LABELS = (200, 1000)
SAMPLES = 200
"""Samples of labels, over which choices are averaged."""


def measure(study: Study, variant: Variant, method: str) -> dict[str, Any]:
    """Test NLL of each setting, the criteria that choose among them, and how often samples of labels choose each."""
    store, (track,) = Store(ROOT / "lab" / "results" / "groups"), study.tracks
    base = variant.adapted(track, track.method(method)).recipe
    test, groups, losses = [], [], []
    for precision in PRECISIONS:
        recipe = type(base)(**{**vars(base), "weight_decay": precision})
        specs = [
            RunSpec(variant.data, variant.model, recipe, track.evaluation, seed)
            for seed in study.seed_range(study.seeds)
        ]
        runs = [store.read(spec) or group_runs.execute_group_run(spec) for spec in specs]
        test.append([run.conditions[CLEAN].metrics["nll"] for run in runs])
        choice = RunSpec(variant.data, variant.model, recipe, EvaluationSpec(test=False), TUNING_SEED)
        case = group_case(choice.data, choice.seed)
        if recipe.exact_counts:
            case = with_exact_counts(case, choice.data)
        groups.append(group_runs.held_out_nll(choice, case))
        parts = list(group_runs.held_out_predictions(choice, case))  # of the same networks
        rows, log_probs = (torch.cat(each) for each in zip(*parts, strict=True))
        losses.append(-log_probs.gather(1, case.train.labels[rows].unsqueeze(1)).squeeze(1))
    nll = torch.stack(losses)  # (settings, rows)
    generator = generator_for(TUNING_SEED, "labels that choose")
    chosen = {"all": _shares(nll.mean(1, keepdim=True))}
    for count in LABELS:
        picked = torch.stack([torch.randperm(nll.shape[1], generator=generator)[:count] for _ in range(SAMPLES)])
        chosen[str(count)] = _shares(nll[:, picked].mean(2))
    return {
        "case": variant.name,
        "method": method,
        "precisions": PRECISIONS,
        "test_nll": test,
        "groups": groups,
        "chosen_by_labels": chosen,
        "rows": nll.shape[1],
    }


def _shares(criteria: torch.Tensor) -> list[float]:
    """How often each setting has the lowest criterion: (settings, samples) -> (settings,)."""
    best = criteria.argmin(0)
    return [float((best == i).double().mean()) for i in range(len(criteria))]


def main() -> None:
    """Measure the missing cases, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "choose_by_groups.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    study = runner.load_known_study("groups")
    left_out = {"voters-official-16"}  # the case voters-official, with another concentration
    content: dict[str, Any] = {"made_by": vars(describe_run("cpu")), "runs": []}
    if options.out.exists():
        content = json.loads(options.out.read_text("utf-8"))
    done = {(each["case"], each["method"]) for each in content["runs"]}
    for variant in study.variants:
        if variant.name in left_out or (options.cases and variant.name not in options.cases):
            continue
        for method in METHODS:
            if (variant.name, method) not in done:
                content["runs"].append(measure(study, variant, method))
                options.out.write_text(json.dumps(content) + "\n", encoding="utf-8")
                print(variant.name, method, flush=True)


if __name__ == "__main__":
    main()

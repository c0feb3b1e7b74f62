"""Results of studies, made up by a formula, so that a test can say what every number is.

They are plain data, which tests change; `typed` makes records of them.
"""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest

from selbo_lab.report import study_page
from selbo_lab.report.study_captions import FIGURE_WORDS
from selbo_lab.run.records import MethodRuns, Run, StudyComparison, StudyResults

Results = dict[str, Any]


def without_drawings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of studies have no figures of comparisons, which take most of their time, but what is said of them."""
    monkeypatch.setattr(study_page, "_figure", lambda comparison, key, _: (FIGURE_WORDS[key](comparison), []))


MADE = {
    "selbo": "0.1.0",
    "code": "0123456789ab",
    "python": "3.12.1",
    "torch": "2.13.0",
    "numpy": "2.4.6",
    "scipy": "1.17.1",
    "machine": "a machine",
    "threads": 1,
    "time": "2026-01-02T03:04:05Z",
}
EQUAL = {
    "words": "beta(5, 5) over equal",
    "partition": "ScoreBins",
    "regions": ["0–.1", ".1–.2", ".2–.3", ".3–.4", ".4–.5", ".5–.6", ".6–.7", ".7–.8", ".8–.9", ".9–1"],
    "s0": [0.1, 0.3, 0.2, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05],
    "concentration": 100.0,
}
UNEQUAL = EQUAL | {
    "regions": ["0–.01", ".01–.05", ".05–.1", ".1–.9", ".9–.95", ".95–.99", ".99–1"],
    "s0": [0.1, 0.05, 0.05, 0.4, 0.2, 0.1, 0.1],
}
SHELLS = {
    "words": "expect(0.9) over shells",
    "partition": "CornerShells",
    "regions": ["class 0 > .95", "class 1 > .95", "class 0 .85–.95", "class 1 .85–.95", "centre"],
    "s0": [0.3, 0.3, 0.1, 0.1, 0.2],
    "concentration": 10.0,
}


def metrics(method: int, seed: int, harm: float) -> Results:
    """What a method has for a seed: method and seed move every metric, harm moves it further."""
    nll = 0.2 + 0.1 * method + 0.01 * seed + harm
    values = {"nll": nll, "accuracy": 0.9 - 0.02 * method - 0.3 * harm, "ece": 0.03 + 0.002 * seed + 0.1 * harm}
    return {**values, "auroc": 0.95, "brier": 0.2, "f1_macro": None, "num_examples": 100}


def condition(method: int, seed: int, harm: float, level: float | None) -> Results:
    found = metrics(method, seed, harm)
    return {"level": level, "metrics": found, "recall": [0.9, 0.8], "scaled": {**found, "nll": found["nll"] - 0.05}}


def harms(suite: str) -> dict[str, tuple[float, float | None]]:
    """Harm and level of the conditions."""
    if suite == "noise":
        return {"clean": (0.0, 0.0), "noise 0.1": (0.1, 0.1), "noise 0.5": (0.5, 0.5)}
    if suite == "kinds":
        return {"clean": (0.0, 0.0), "fog": (0.2, None), "shot_noise": (0.6, None)}
    if suite == "severities":
        kinds = {"fog": 0.2, "shot_noise": 0.6}
        return {"clean": (0.0, 0.0)} | {f"{kind} {s}": (harm * s, None) for kind, harm in kinds.items() for s in (1, 2)}
    if suite == "use":
        return {"clean": (0.0, 0.0), "use": (0.3, None)}
    return {"clean": (0.0, 0.0)}


def run(
    method: int, seed: int, *, suite: str = "", belief: Results | None = None, ood: tuple[str, ...] = ()
) -> Results:
    edges = [math.log(2) * i / 4 for i in range(5)]
    masses = [0.0] * len(belief["s0"]) if belief else [1.0]
    masses[0] = 1.0
    foreign = {
        "name": "Fashion & co",
        "entropy_in": 0.1 + 0.01 * seed,
        "entropy_out": 0.5,
        "entropy_difference": 0.4 - 0.01 * seed,
        "auroc": 0.9,
        "fpr95": None,
        "scaled": {"entropy_in": 0.2, "entropy_out": 0.5, "auroc": 0.9},
        "entropy": {"edges": edges, "in": [60, 20, 10, 10], "out": [5, 5, 30, 60]},
    }
    return {
        "format": "selbo-run-1",
        "id": f"{method}-{seed}",
        "spec": {"seed": seed},
        "data": {"train": "a" * 64, "val": "b" * 64, "test": "c" * 64},
        "sizes": {"train": 1234, "val": 200, "test": 100},
        "made_by": MADE,
        "status": "finished",
        "val": condition(method, seed, 0.0, None),
        "temperature": 1.1,
        "conditions": {name: condition(method, seed, *each) for name, each in harms(suite).items()},
        "ood": dict.fromkeys(ood, foreign),
        "histogram": {"belief": belief, "masses": masses},
        "reliability": {"confidence": [None, 0.6, 0.9], "accuracy": [None, 0.5, 0.8], "count": [0, 20, 80]},
        "score_histogram": [40, *[0] * 24, 20, *[0] * 23, 40],
        "map": {
            "places": [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 2.0]],
            "scores": [0.0, 1.0, 0.0, 1.0],
            "labels": [0, 1, 0, 1],
        },
        "seconds": {"all": 12.0 + seed, "training": 10.0, "evaluation": 2.0},
    }


def diverged(seed: int) -> Results:
    kept = {key: value for key, value in run(0, seed).items() if key in {"format", "id", "spec", "data", "sizes"}}
    error = "the loss was not finite at step 7"
    return {**kept, "made_by": MADE, "status": "diverged", "error": error, "seconds": {"all": 1.0}}


def method(
    number: int,
    name: str,
    title: str,
    *,
    seeds: int,
    belief: Results | None = None,
    recipe: Results | None = None,
    **more: Any,
) -> Results:
    told = {"belief": "", "partition": ""}
    if belief:
        told = {"belief": "expect(0.9)", "partition": "shells" if belief is SHELLS else "equal"}
    objective = "summary_elbo" if belief else "elbo"
    settings = {"objective": objective, "prior_std": 0.5, "concentration": 100.0, "per_example": False, "steps": 3000}
    return {
        "name": name,
        "title": title,
        "note": "",
        "chosen": {"kl_weight": 0.25} if belief else {},
        "tried": [{"kl_weight": 0.25, "val_nll": 0.31}, {"kl_weight": 0.5, "val_nll": None}] if belief else [],
        "recipe": settings | told | (recipe or {}),
        "runs": [run(number, seed, belief=belief, **more) for seed in range(seeds)],
    }


def comparison(methods: list[Results], *, track: str = "selbo", variant: str = "net", title: str = "A net") -> Results:
    paper = {methods[0]["name"]: {"values": {"clean.nll": [0.215, 0.004]}, "not_comparable": {}}}
    return {
        "variant": variant,
        "title": title,
        "track": track,
        "reference": methods[0]["name"],
        "paper": paper if track == "published" else {},
        "data": {"name": "mnist35", "train_size": 1000},
        "model": {"name": "lenet"},
        "evaluation": {"draws": 16},
        "methods": methods,
    }


def four(seeds: int = 3, **more: Any) -> list[Results]:
    """Four methods, two with a belief; the last has a title that is too long for a figure."""
    return [
        method(0, "elbo", "ELBO", seeds=seeds, **more),
        method(1, "smoothing", "LS (ε = 0.1) & <more>", seeds=seeds, **more),
        method(2, "summary", "Summary ELBO", seeds=seeds, belief=EQUAL, **more),
        method(3, "shells", "Summary ELBO (expected accuracy, shells)", seeds=seeds, belief=SHELLS, **more),
    ]


def broken(seeds: int = 3, **more: Any) -> list[Results]:
    """The same with a run missing, a run diverged, a method without any run, and metrics that are None."""
    methods = four(seeds, **more)
    methods[0]["runs"][1] = None
    methods[2]["runs"][0] = diverged(0)
    methods[1]["runs"] = [diverged(seed) for seed in range(seeds)]
    for each in methods[3]["runs"][2]["conditions"].values():
        each["metrics"]["nll"] = None
    return methods


def study(comparisons: list[Results], *, name: str = "mnist35", seeds: int = 3, generated: bool = False) -> Results:
    """Results of a study that went through JSON."""
    results = {
        "study": name,
        "title": "Threes & <fives>",
        "paper": "Table 7 & its figure",
        "generated": generated,
        "seeds": list(range(seeds)),
        "comparisons": comparisons,
    }
    return json.loads(json.dumps(copy.deepcopy(results)))


def scores_study() -> Results:
    names = {"none": None, "beta-0.1": UNEQUAL, "beta-1": UNEQUAL, "beta-5": UNEQUAL, "independent-5": UNEQUAL}
    methods = [
        method(i, name, f"title of {name}", seeds=1, belief=belief, recipe=belief and {"partition": "unequal"})
        for i, (name, belief) in enumerate(names.items())
    ]
    return study([comparison(methods)], name="scores", seeds=1)


def sweep_study() -> Results:
    """Concentrations 10, 100 and 1000 of a summary, and the ELBO without it; the middle one has a run missing."""
    swept = [
        method(
            i + 1, f"alpha-{a}", f"Summary ELBO, concentration {a}", seeds=3, belief=SHELLS, recipe={"concentration": a}
        )
        for i, a in enumerate((1000, 10, 100))
    ]
    swept[2]["runs"][0] = None
    return study([comparison([method(0, "none", "ELBO", seeds=3), *swept])], name="alpha")


def domain_study(*, noise: float = 0.5) -> Results:
    """A source and a target domain, which has noise or is the same."""
    data = {
        "name": "sst",
        "labels": 20,
        "label_fractions": [0.5, 0.5],
        "use_fractions": [0.5, 0.5],
        "use_noise": noise,
        "use_corruption": "",
        "use_accuracy": 0.88,
        "val_size": 20,
    }
    found = study([comparison(four(suite="use"))], name="shift-sst")
    found["comparisons"][0]["data"] = data
    for each in found["comparisons"][0]["methods"]:
        for made in each["runs"]:
            made["sizes"] |= {"use": 77, "unlabelled": 3000}
            for condition in made["conditions"].values():
                condition["metrics"]["f1_macro"] = 0.5
    return found


# --- records ---

BAYESIAN = ("elbo", "summary_elbo", "independent_summary")


def typed(plain: Results | None) -> Any:
    """The record of a study, a comparison, a method or a run; what a test says nothing about is filled in."""
    if plain is None:
        return None
    if "comparisons" in plain:
        return StudyResults.from_dict({**plain, "comparisons": list(map(typed, plain["comparisons"]))})
    if "methods" in plain:
        filled = {"title": "", "data": {"name": "mnist35"}, "model": {"name": "lenet"}, "evaluation": {}, **plain}
        return StudyComparison.from_dict({**filled, "methods": list(map(typed, plain["methods"]))})
    if "runs" in plain:
        recipe = {"objective": "elbo", **plain.get("recipe", {})}
        recipe.setdefault("bayesian", recipe["objective"] in BAYESIAN)
        tried = [
            {"val_nll": each["val_nll"], "settings": {key: value for key, value in each.items() if key != "val_nll"}}
            for each in plain.get("tried", [])
        ]
        runs = [each and typed({**each, "recipe": recipe}) for each in plain["runs"]]
        return MethodRuns.from_dict({"chosen": {}, **plain, "tried": tried, "recipe": recipe, "runs": runs})
    spec = {"data": {"name": "mnist35"}, "model": {"name": "lenet"}, "evaluation": {}, "seed": 0}
    spec |= {"recipe": plain.get("recipe", {"objective": "elbo", "bayesian": True}), **plain.get("spec", {})}
    filled = {"id": "0", "data": {}, "sizes": {}, "seconds": {"all": 1.0}, **plain}
    return Run.from_dict({**filled, "spec": spec, "made_by": {**MADE, **plain.get("made_by", {})}})

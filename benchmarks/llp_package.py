"""Methods of the package llp-learn on cases of the study `groups`, in an environment of its own.

    python benchmarks/llp_package.py export FOLDER [--cases voters ...]   # here, with selbo-lab and its data
    OTHER/bin/python benchmarks/llp_package.py fit FOLDER                 # there: pip install llp-learn torchvision
    python benchmarks/llp_package.py choose FOLDER
    OTHER/bin/python benchmarks/llp_package.py fit FOLDER
    python benchmarks/llp_package.py score FOLDER

llp-learn 1.6.0 (MIT) needs torch 2.0, numpy 1.24 and scikit-learn 1.2, which selbo-lab does not support, and
torchvision, which it does not declare. So data and predictions travel as files. It has no probabilities: those of DLLP
are the softmax of the outputs of its network, and those of EM are those of its logistic regression. Rows without a
group are left out. Settings are chosen as in the study: four per method, at seed 1000, by the likelihood of held-out
groups.
"""

import argparse
import contextlib
import importlib
import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

CASES = ("voters", "voters-official", "adult-both", "magic-bags-64", "sst-uneven-64")
SETTINGS = {
    "DLLP": [{"lr": each} for each in (1e-4, 1e-3, 1e-2, 1e-1)],
    "EM": [{"C": each} for each in (1e-3, 1e-2, 1e-1, 1.0)],
}
EPOCHS = 100
HIDDEN = (100,)
"""Hidden units of DLLP: the default of llp-learn, which has no linear network."""

TUNING_SEED, SEEDS, PARTS = 1000, range(200, 205), 3


# --- with selbo-lab ---


def case_of(name: str, seed: int) -> Any:
    """The data of a case of the study."""
    from selbo_lab.run.group_cases import group_case
    from selbo_lab.schedule import runner

    variant = next(each for each in runner.load_known_study("groups").variants if each.name == name)
    return group_case(variant.data, seed)


def parts_of(case: Any) -> np.ndarray:
    """Part of each group, as in the study."""
    from selbo_lab.run.group_runs import parts_of_groups

    found: np.ndarray = parts_of_groups(len(case.names), PARTS, seed=TUNING_SEED).numpy()
    return found


def export(folder: Path, cases: list[str]) -> None:
    """Write the training rows, groups and fractions of each case, and the inputs to predict. No label is written."""
    jobs = []
    for name in cases:
        for seed in (TUNING_SEED, *SEEDS):
            case = case_of(name, seed)
            inputs, groups = case.train.network_inputs().numpy(), case.groups.numpy()
            stated = {"fractions": case.fractions.numpy(), "groups": groups, "inputs": inputs}
            if seed != TUNING_SEED:
                np.savez(folder / f"{name}-{seed}.npz", **stated, ask=case.test.network_inputs().numpy())
                continue
            part = np.append(parts_of(case), -1)[groups]
            for number in range(PARTS):
                rows = part != number
                stated = {"fractions": case.fractions.numpy(), "groups": groups[rows], "inputs": inputs[rows]}
                np.savez(folder / f"{name}-part{number}.npz", **stated, ask=inputs[~rows])
                jobs += [
                    {"data": f"{name}-part{number}", "method": method, "setting": setting}
                    for method, settings in SETTINGS.items()
                    for setting in range(len(settings))
                ]
    (folder / "jobs.json").write_text(json.dumps(jobs))


def choose(folder: Path, cases: list[str]) -> None:
    """Choose the setting of each method and case by held-out groups, and write the jobs of the reported seeds."""
    import torch

    from selbo import ClassRegions, GroupedSummary
    from selbo_lab.run.group_runs import MOST_HELD_OUT

    jobs = []
    for name in cases:
        case = case_of(name, TUNING_SEED)
        part = np.append(parts_of(case), -1)[case.groups.numpy()]
        concentration = case.concentration.clamp(max=MOST_HELD_OUT)
        counts = GroupedSummary(ClassRegions(case.fractions.shape[1]), case.fractions, concentration, form="counts")
        for method, settings in SETTINGS.items():
            found = []
            for setting in range(len(settings)):
                total = 0.0
                for number in range(PARTS):
                    rows = torch.from_numpy(part == number)
                    log_probs = torch.from_numpy(read(folder, f"{name}-part{number}", method, setting))
                    total += counts(log_probs, case.groups[rows]).item()
                found.append(total / len(case.names))
            best = int(np.nanargmax(found))
            print(name, method, settings[best], [round(each, 3) for each in found])
            jobs += [{"data": f"{name}-{seed}", "method": method, "setting": best} for seed in SEEDS]
    (folder / "jobs.json").write_text(json.dumps(jobs))


def score(folder: Path, cases: list[str]) -> None:
    """Print test metrics: means over seeds and their standard errors."""
    import torch

    from selbo import evaluate

    jobs = json.loads((folder / "jobs.json").read_text())
    for name in cases:
        for method in SETTINGS:
            found = []
            for seed in SEEDS:
                (setting,) = {
                    each["setting"] for each in jobs if (each["data"], each["method"]) == (f"{name}-{seed}", method)
                }
                log_probs = torch.from_numpy(read(folder, f"{name}-{seed}", method, setting))
                metrics = evaluate(log_probs.exp(), case_of(name, seed).test.labels)
                found.append([metrics[each] for each in ("nll", "accuracy", "auroc", "ece")])
            mean, error = np.mean(found, 0), np.std(found, 0, ddof=1) / len(found) ** 0.5
            shown = " ".join(f"{a:.3f} ± {b:.3f}" for a, b in zip(mean, error, strict=True))
            print(f"{name:16} {method:5} {SETTINGS[method][setting]} NLL, accuracy, AUROC, ECE: {shown}")


def read(folder: Path, data: str, method: str, setting: int) -> np.ndarray:
    """Stored log-probabilities, shape (B, K)."""
    with np.load(folder / f"{data}-{method}{setting}-out.npz") as stored:
        found: np.ndarray = stored["log_probs"]
    return found


# --- with llp-learn ---


def fit(folder: Path) -> None:
    """Run the jobs that are missing."""
    for job in json.loads((folder / "jobs.json").read_text()):
        data, method, setting = job["data"], job["method"], job["setting"]
        target = folder / f"{data}-{method}{setting}-out.npz"
        if target.exists():
            continue
        begin = time.process_time()
        with np.load(folder / f"{data}.npz") as stored, contextlib.redirect_stdout(io.StringIO()):
            known = stored["groups"] >= 0
            inputs, groups, share = stored["inputs"][known], stored["groups"][known], stored["fractions"][:, 1]
            train = _dllp if method == "DLLP" else _em
            log_probs = train(inputs, groups, share, stored["ask"], **SETTINGS[method][setting])
        np.savez(target, log_probs=log_probs)
        print(data, method, setting, round(time.process_time() - begin, 1), flush=True)


def _dllp(inputs: np.ndarray, groups: np.ndarray, share: np.ndarray, ask: np.ndarray, *, lr: float) -> np.ndarray:
    import torch

    torch.set_num_threads(1)
    made = importlib.import_module("llp_learn.dllp").DLLP(
        lr=lr,
        n_epochs=EPOCHS,
        model_type="simple-mlp",
        hidden_layer_sizes=HIDDEN,
        device="cpu",
        n_jobs=0,
        random_state=0,
    )
    made.fit(inputs, groups, share.astype(np.float32))
    made.model.eval()
    with torch.no_grad():
        found: np.ndarray = made.model(torch.from_numpy(ask)).double().log_softmax(-1).numpy()
    return found


def _em(inputs: np.ndarray, groups: np.ndarray, share: np.ndarray, ask: np.ndarray, *, C: float) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    present = np.unique(groups)  # it needs the fractions of these groups, numbered from 0
    made = importlib.import_module("llp_learn.em").EM(LogisticRegression(C=C), random_state=0)
    made.fit(inputs, np.searchsorted(present, groups), share[present])
    found: np.ndarray = made.model.predict_log_proba(ask)
    return found


def main() -> None:
    """Run one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("export", "fit", "choose", "score"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    told = parser.parse_args()
    told.folder.mkdir(parents=True, exist_ok=True)
    if told.step == "fit":
        fit(told.folder)
    else:
        {"export": export, "choose": choose, "score": score}[told.step](told.folder, told.cases)


if __name__ == "__main__":
    main()

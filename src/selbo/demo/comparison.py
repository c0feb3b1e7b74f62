"""The demo: six ways to train a classifier on the same noisy, imbalanced digits, with the same tests."""

import functools
import json
import time
from collections.abc import Callable
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from selbo.demo.digits import NUM_CLASSES, NoisyDigits, noisy_digits
from selbo.evaluation import calibrate
from selbo.evaluation.predict import Prediction, at_temperature, predict
from selbo.models import MLP
from selbo.nn import to_bayesian
from selbo.objectives import ELBO, CrossEntropy, Evidential, LabelSmoothing, Objective, SummaryELBO
from selbo.presets import INIT_STD
from selbo.report import outcomes
from selbo.report.takeaway import takeaway
from selbo.results import ClassificationTask, Comparison, Outcome
from selbo.summary.beliefs import Belief
from selbo.summary.elicitation import expect
from selbo.summary.likelihood import SummaryLikelihood
from selbo.summary.partitions import ConfidenceBins
from selbo.training import Optimizer, fit
from selbo.training.processes import pool_of

STATED_ACCURACY: Final = 0.85
"""Stated accuracy: about six of seven of these noisy digits can be recognised. (Networks of this kind reach it on the
validation images of seeds 10 to 14, which the demo does not use.)"""

EDGES: Final = (0.3, 0.5, 0.7, 0.9)
HIDDEN: Final = 128
STEPS: Final = 1000
BATCH_SIZE: Final = 150
PREDICTION_DRAWS: Final = 64
PRIOR_STD: Final = 0.2

PAGE_TITLE: Final = "Six ways to train a classifier of noisy digits"
RESULTS: Final = "results.json"

Report = Callable[[str, int], object]


class Fitted(NamedTuple):
    """A trained network and its objective."""

    network: nn.Module
    objective: Objective


@dataclass(frozen=True)
class DemoMethod:
    """A training method: network, objective, and the one setting that was tuned for it.

    Attributes:
        name: Displayed name.
        objective: Builds the objective from the number of training images, the belief and the setting.
        setting: Tuned setting: ``"weight decay"``, ``"smoothing"``, ``"kl weight"`` or ``"concentration"``, the last
            as a multiple of the number of training images.
        value: Value of the setting.
        tried: Candidate values, chosen by validation NLL (benchmarks/demo_settings.py); as many for each method.
        weight_decay: Weight decay, unless that is the setting.
        bayesian: Whether the network has a posterior.
        tempered: Whether a temperature is fitted on the validation images.
    """

    name: str
    objective: Callable[[int, Belief, float], Objective]
    setting: str
    value: float
    tried: tuple[float, ...]
    weight_decay: float = 0.0
    bayesian: bool = False
    tempered: bool = False

    @property
    def decay(self) -> float:
        """Weight decay of the optimiser."""
        return self.value if self.setting == "weight decay" else self.weight_decay


class DemoJob(NamedTuple):
    """Runs that share one network and one seed."""

    seed: int
    methods: tuple[str, ...]
    steps: int
    device: str


DECAYS: Final = (0.0, 0.003, 0.01, 0.02)
DECAY: Final = 0.003
KL_WEIGHT: Final = 0.05

DEMO_METHODS: Final = (
    DemoMethod("plain", lambda n, *_: CrossEntropy(n), "weight decay", DECAY, DECAYS),
    DemoMethod("plain + temperature", lambda n, *_: CrossEntropy(n), "weight decay", DECAY, DECAYS, tempered=True),
    DemoMethod(
        "label smoothing",
        lambda n, _, epsilon: LabelSmoothing(epsilon, n),
        "smoothing",
        0.02,
        (0.02, 0.05, 0.1, 0.2),
        weight_decay=DECAY,
    ),
    DemoMethod("evidential", lambda n, *_: Evidential(n), "weight decay", 0.0, (0.0, 0.0003, 0.001, 0.003)),
    DemoMethod(
        "ELBO",
        lambda n, _, weight: ELBO(n, kl_weight=weight),
        "kl weight",
        KL_WEIGHT,
        (0.05, 0.1, 0.2, 0.3),
        bayesian=True,
    ),
    DemoMethod(
        "Summary ELBO",
        lambda n, belief, times: SummaryELBO(
            confidence_summary(belief, times * n), n, kl_weight=KL_WEIGHT, summary_warmup=0
        ),
        "concentration",
        0.25,
        (0.25, 0.5, 1.0, 2.0),
        bayesian=True,
    ),
)


GROUPS: Final = (("plain", "plain + temperature"), ("label smoothing",), ("evidential",), ("ELBO",), ("Summary ELBO",))
"""Methods that share a network run together."""


def run_job(job: DemoJob, report: Report) -> list[Outcome]:
    """Train and test the methods of a job in one thread, since such small networks gain nothing from more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        task, trained = noisy_digits(job.seed), dict[str, Fitted]()
        methods = [method for method in DEMO_METHODS if method.name in job.methods]
        return [run_method(each, task, job, trained=trained, report=report) for each in methods]
    finally:
        torch.set_num_threads(threads)


def _silently(job: DemoJob) -> list[Outcome]:
    return run_job(job, _silent)


def _shared_out(work: list[DemoJob], jobs: int, report: Report) -> list[Outcome]:
    """Run jobs in parallel processes, the longest first; the results are in the order of the jobs."""
    with pool_of(min(jobs, len(work))) as pool:
        last_first = {
            pool.submit(_silently, job): job for job in sorted(work, key=lambda job: -GROUPS.index(job.methods))
        }
        try:
            for done in as_completed(last_first):
                job = last_first[done]
                report(f"{job.methods[0]}, seed {job.seed}", len(job.methods) * job.steps)
            found = {job: done.result() for done, job in last_first.items()}
        except BaseException:  # such as a keyboard interrupt: do not wait for jobs that have not started
            pool.shutdown(cancel_futures=True)
            raise
    return [run for job in work for run in found[job]]


def _silent(_what: str, _steps: int) -> None:
    """Report nothing."""


def compare(
    *,
    seeds: int = 3,
    steps: int = STEPS,
    seed: int = 0,
    device: str = "cpu",
    jobs: int = 1,
    report: Report = _silent,
) -> Comparison:
    """Train all methods with all seeds, and test them on clean, corrupted and out-of-distribution inputs.

    Args:
        seeds: Number of seeds.
        steps: Training steps per run.
        seed: First seed.
        device: Device to train on.
        jobs: Number of processes; it does not affect the results, since each run has one thread.
        report: Called with a label and the number of steps since the last call.

    Returns:
        The results, with their takeaway.
    """
    begin = time.perf_counter()
    chosen = range(seed, seed + seeds)
    work = [DemoJob(each, methods, steps, device) for each in chosen for methods in GROUPS]
    runs = _shared_out(work, jobs, report) if jobs > 1 else [run for job in work for run in run_job(job, report)]
    first = noisy_digits(seed)
    results = Comparison(
        title=PAGE_TITLE,
        description=DESCRIPTION.format(
            train=len(first.train[1]),
            val=len(first.val[1]),
            test=len(first.test[1]),
            percent=f"{100 * STATED_ACCURACY:g}",
        ),
        focus="Summary ELBO",
        task=ClassificationTask(
            num_train=len(first.train[1]),
            num_test=len(first.test[1]),
            num_classes=NUM_CLASSES,
            class_names=tuple(str(digit) for digit in range(NUM_CLASSES)),
            class_counts=tuple(first.train[1].bincount(minlength=NUM_CLASSES).tolist()),
        ),
        belief=outcomes.describe_belief(own_summary(first), words_of(first)),
        methods=tuple(method.name for method in DEMO_METHODS),
        seeds=tuple(chosen),
        runs=tuple(runs),
        clean="clean",
        corruption="noise added",
        ood_name="photographs",
        made_by=outcomes.made_by(time.perf_counter() - begin),
    )
    return replace(results, takeaway=takeaway(results))


def made_here(folder: Path) -> bool:
    """Whether a folder holds results of the demo; only then are they replaced."""
    try:
        found = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("title") == PAGE_TITLE


DESCRIPTION: Final = """\
{train} handwritten digits of 8 x 8 pixels with noise on every pixel, zeros 7.5 times as frequent as nines; {val} more \
for validation, {test} to test on. All methods train the same small network for the same number of steps on the same \
images. They are tested on clean test images, on images with more noise than they were trained on, and on patches of \
photographs, on which a classifier of digits should not be confident.

The belief of the Summary ELBO states that about {percent} % of such images can be recognised, and how frequent each \
digit is. For each method one of four settings was chosen on the validation images of other seeds; nothing was chosen \
on test images. Only temperature scaling also uses the labels of the validation images of its own seed."""


def words_of(task: NoisyDigits) -> str:
    """Describe the belief in words."""
    rarest, most = min(task.class_fractions), max(task.class_fractions)
    return (
        f"About {100 * STATED_ACCURACY:g} % of these images can be read; the most frequent digit makes up "
        f"{100 * most:.0f} % of them and the rarest {100 * rarest:.0f} %."
    )


def stated_belief(task: NoisyDigits) -> Belief:
    """The belief of the demo: expected accuracy and class fractions."""
    return _expected(task.class_fractions)


@functools.cache
def _expected(class_fractions: tuple[float, ...]) -> Belief:
    return expect(STATED_ACCURACY, class_fractions=list(class_fractions))


def confidence_summary(belief: Belief, concentration: float) -> SummaryLikelihood:
    """A summary with this belief about the confidence of predictions."""
    partition = ConfidenceBins(list(EDGES), num_classes=NUM_CLASSES)
    return SummaryLikelihood(partition, belief, concentration=concentration, overrule_labels=True)


def own_summary(task: NoisyDigits) -> SummaryLikelihood:
    """The summary that the Summary ELBO is trained with."""
    times = DEMO_METHODS[-1].value
    return confidence_summary(stated_belief(task), times * len(task.train[1]))


def fitted(method: DemoMethod, task: NoisyDigits, *, seed: int, steps: int, device: str, report: Report) -> Fitted:
    """Train a network."""
    objective = method.objective(len(task.train[1]), stated_belief(task), method.value)
    network: nn.Module = MLP((64, HIDDEN, NUM_CLASSES), generator=torch.Generator().manual_seed(seed))
    if method.bayesian:
        network = to_bayesian(network, prior_std=PRIOR_STD, init_std=INIT_STD)
    done = 0

    def note(record: dict[str, Any]) -> None:
        nonlocal done
        report(f"{method.name}, seed {seed}", record["step"] - done)
        done = record["step"]

    fit(
        network,
        objective,
        task.train,
        steps=steps,
        batch_size=BATCH_SIZE,
        optimizer=Optimizer(weight_decay=method.decay),
        seed=seed,
        device=device,
        callbacks=[note],
    )
    return Fitted(network, objective)


def run_method(
    method: DemoMethod, task: NoisyDigits, job: DemoJob, *, trained: dict[str, Fitted], report: Report
) -> Outcome:
    """Train one method with one seed, or reuse the deterministic network, and test it."""
    begin = time.perf_counter()
    if method.tempered:
        model = trained["plain"]
        report(f"{method.name}, seed {job.seed}", job.steps)
        on_validation = predicted(model, task.val[0])
        temperature = calibrate.temperature(on_validation.log_probs, task.val[1])
    else:
        model = trained[method.name] = fitted(
            method, task, seed=job.seed, steps=job.steps, device=job.device, report=report
        )
        temperature = 1.0
    labels = task.test[1]
    clean, foreign = predicted(model, task.test[0], temperature), predicted(model, task.photographs, temperature)
    conditions = {"clean": outcomes.condition(clean, labels, level=0.0)}
    for level, images in task.corrupted.items():
        noisy = predicted(model, images, temperature)
        conditions[f"noise {level:g}"] = outcomes.condition(noisy, labels, level=level)
    return Outcome(
        method=method.name,
        seed=job.seed,
        conditions=conditions,
        histogram=outcomes.region_masses(clean, own_summary(task).partition),
        reliability=outcomes.reliability_of(clean, labels),
        entropy=outcomes.entropies(clean, foreign),
        ood=outcomes.ood_of(clean, foreign),
        seconds=time.perf_counter() - begin,
    )


def predicted(model: Fitted, images: Tensor, temperature: float = 1.0) -> Prediction:
    """Predictions of a trained network for images, at a temperature."""
    generator = torch.Generator(next(model.network.parameters()).device).manual_seed(0)
    found = predict(model.network, images, PREDICTION_DRAWS, objective=model.objective, generator=generator)
    return found if temperature == 1.0 else at_temperature(found, temperature)

"""The demonstration: six ways to train a classifier on the same noisy, unbalanced digits, judged by the same tests."""

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
from selbo.report import outcomes
from selbo.report.takeaway import takeaway
from selbo.results import ClassificationTask, Comparison, Outcome
from selbo.summary.beliefs import Belief
from selbo.summary.elicitation import expect
from selbo.summary.likelihood import SummaryLikelihood
from selbo.summary.partitions import ConfidenceBins
from selbo.training import fit
from selbo.training.processes import pool_of

ACCURACY: Final = 0.85
"""What we say of the task: about six of seven of these noisy digits can be read. (Networks of this kind reach it on the
validation images of seeds 10 to 14, which the demonstration does not use.)"""

EDGES: Final = (0.3, 0.5, 0.7, 0.9)
HIDDEN: Final = 128
STEPS: Final = 1000
BATCH_SIZE: Final = 150
PREDICTION_DRAWS: Final = 64
PRIOR_STD: Final = 0.2
INIT_STD: Final = 0.03

TITLE: Final = "Six ways to train a classifier of noisy digits"
RESULTS: Final = "results.json"

Report = Callable[[str, int], object]


class Fitted(NamedTuple):
    """A trained network, and what it was trained with."""

    network: nn.Module
    objective: Objective


@dataclass(frozen=True)
class DemoMethod:
    """A way to train: how the network is made ready, what is maximised, and the one setting that was chosen for it.

    Attributes:
        name: As it is shown.
        objective: From the number of training images, the belief and the setting.
        setting: What was chosen: ``"weight decay"``, ``"smoothing"``, ``"kl weight"`` or ``"concentration"``, the
            last as a multiple of the number of training images.
        value: Of the setting.
        tried: The values it was chosen from, by validation NLL (benchmarks/demo_settings.py); as many for each method.
        weight_decay: Unless that is the setting.
        bayesian: Whether the network gets a posterior.
        tempered: Whether its confidence is corrected afterwards, on the validation images.
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


class Job(NamedTuple):
    """Runs that belong together: one network, with one seed."""

    seed: int
    methods: tuple[str, ...]
    steps: int
    device: str


DECAYS: Final = (0.0, 0.003, 0.01, 0.02)
DECAY: Final = 0.003
KL_WEIGHT: Final = 0.05

METHODS: Final = (
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
        lambda n, belief, times: SummaryELBO(summary_of(belief, times * n), n, kl_weight=KL_WEIGHT, summary_warmup=0),
        "concentration",
        0.25,
        (0.25, 0.5, 1.0, 2.0),
        bayesian=True,
    ),
)


GROUPS: Final = (("plain", "plain + temperature"), ("label smoothing",), ("evidential",), ("ELBO",), ("Summary ELBO",))
"""Methods that share a network are carried out together."""


def carry_out(job: Job, report: Report) -> list[Outcome]:
    """Train and test the methods of a job, in one thread: networks this small gain nothing from more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        task, trained = noisy_digits(job.seed), dict[str, Fitted]()
        methods = [method for method in METHODS if method.name in job.methods]
        return [run(each, task, job, trained=trained, report=report) for each in methods]
    finally:
        torch.set_num_threads(threads)


def _silently(job: Job) -> list[Outcome]:
    return carry_out(job, _silent)


def _shared_out(work: list[Job], jobs: int, report: Report) -> list[Outcome]:
    """Jobs in processes of their own; the longest are begun first, and the order of the results is that of the jobs."""
    with pool_of(min(jobs, len(work))) as pool:
        last_first = {
            pool.submit(_silently, job): job for job in sorted(work, key=lambda job: -GROUPS.index(job.methods))
        }
        try:
            for done in as_completed(last_first):
                job = last_first[done]
                report(f"{job.methods[0]}, seed {job.seed}", len(job.methods) * job.steps)
            found = {job: done.result() for done, job in last_first.items()}
        except BaseException:  # of the keyboard, for example: what was not begun is not waited for
            pool.shutdown(cancel_futures=True)
            raise
    return [run for job in work for run in found[job]]


def _silent(_what: str, _steps: int) -> None:
    """Say nothing."""


def compare(
    *,
    seeds: int = 3,
    steps: int = STEPS,
    seed: int = 0,
    device: str = "cpu",
    jobs: int = 1,
    report: Report = _silent,
) -> Comparison:
    """Train all methods with all seeds, and test them on clean, corrupted and foreign inputs.

    Args:
        seeds: How many.
        steps: Training steps of each run.
        seed: The first of the seeds.
        device: Where to train.
        jobs: How many processes to share the work; it changes no number, since each run has one thread.
        report: Called with what is being done and how many steps were taken since the last call.

    Returns:
        What was found, with its takeaway.
    """
    begin = time.perf_counter()
    chosen = range(seed, seed + seeds)
    work = [Job(each, methods, steps, device) for each in chosen for methods in GROUPS]
    runs = _shared_out(work, jobs, report) if jobs > 1 else [run for job in work for run in carry_out(job, report)]
    first = noisy_digits(seed)
    results = Comparison(
        title=TITLE,
        description=DESCRIPTION.format(
            train=len(first.train[1]), val=len(first.val[1]), test=len(first.test[1]), percent=f"{100 * ACCURACY:g}"
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
        methods=tuple(method.name for method in METHODS),
        seeds=tuple(chosen),
        runs=tuple(runs),
        clean="clean",
        corruption="noise added",
        ood_name="photographs",
        made_by=outcomes.made_by(time.perf_counter() - begin),
    )
    return replace(results, takeaway=takeaway(results))


def made_here(folder: Path) -> bool:
    """Whether a folder holds results of the demonstration; only then are they replaced."""
    try:
        found = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("title") == TITLE


DESCRIPTION: Final = """\
{train} handwritten digits of 8 x 8 pixels with noise on every pixel, zeros 7.5 times as frequent as nines; {val} more \
for validation, {test} to test on. All methods train the same small network for the same number of steps on the same \
images. They are tested on clean test images, on images with more noise than they were trained on, and on patches of \
photographs, of which a classifier of digits should not be sure.

The Summary ELBO was told two numbers before training: that about {percent} % of such images can be read, and how \
frequent each digit is. For each method one setting was chosen out of four, on the validation images of other seeds; \
nothing was chosen on test images. Temperature scaling also uses the labels of the validation images of its own seed, \
which the others do without."""


def words_of(task: NoisyDigits) -> str:
    """What is believed, in words."""
    rarest, most = min(task.class_fractions), max(task.class_fractions)
    return (
        f"About {100 * ACCURACY:g} % of these images can be read; the most frequent digit makes up "
        f"{100 * most:.0f} % of them and the rarest {100 * rarest:.0f} %."
    )


def stated_belief(task: NoisyDigits) -> Belief:
    """The belief of the demonstration: expected accuracy, and how frequent each digit is."""
    return _expected(task.class_fractions)


@functools.cache
def _expected(class_fractions: tuple[float, ...]) -> Belief:
    return expect(ACCURACY, class_fractions=list(class_fractions))


def summary_of(belief: Belief, concentration: float) -> SummaryLikelihood:
    """That belief about how sure predictions are."""
    partition = ConfidenceBins(list(EDGES), num_classes=NUM_CLASSES)
    return SummaryLikelihood(partition, belief, concentration=concentration, overrule_labels=True)


def own_summary(task: NoisyDigits) -> SummaryLikelihood:
    """The summary that the Summary ELBO is trained with."""
    times = METHODS[-1].value
    return summary_of(stated_belief(task), times * len(task.train[1]))


def fitted(method: DemoMethod, task: NoisyDigits, *, seed: int, steps: int, device: str, report: Report) -> Fitted:
    """A network, trained."""
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
        weight_decay=method.decay,
        seed=seed,
        device=device,
        callbacks=[note],
        progress=False,
    )
    return Fitted(network, objective)


def run(method: DemoMethod, task: NoisyDigits, job: Job, *, trained: dict[str, Fitted], report: Report) -> Outcome:
    """Train one method with one seed, or take the network of the plain one, and test it."""
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
    """What a trained network says of images, its confidence corrected by a temperature."""
    generator = torch.Generator(next(model.network.parameters()).device).manual_seed(0)
    found = predict(model.network, images, PREDICTION_DRAWS, objective=model.objective, generator=generator)
    return found if temperature == 1.0 else at_temperature(found, temperature)

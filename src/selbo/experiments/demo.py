"""The demonstration: six ways to train a classifier on the same noisy, unbalanced digits, judged by the same tests."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from selbo.data.digits import NUM_CLASSES, NoisyDigits, noisy_digits
from selbo.evaluation import calibrate
from selbo.evaluation.predict import Prediction, predict
from selbo.experiments import outcomes
from selbo.metrics.uncertainty import entropy
from selbo.models import MLP
from selbo.nn import to_bayesian
from selbo.objectives import ELBO, CrossEntropy, Evidential, LabelSmoothing, Objective, SummaryELBO
from selbo.report.comparison import noisiest, summarise
from selbo.summary.elicitation import expect
from selbo.summary.likelihood import SummaryLikelihood
from selbo.summary.partitions import ConfidenceBins
from selbo.training import fit

ACCURACY: Final = 0.8
"""What we say of the task: about four of five of these noisy digits can be read."""

EDGES: Final = (0.3, 0.5, 0.7, 0.9)
HIDDEN: Final = 128
STEPS: Final = 1000
BATCH_SIZE: Final = 150
PREDICTION_DRAWS: Final = 64
PRIOR_STD: Final = 0.2
INIT_STD: Final = 0.03
KL_WEIGHT: Final = 0.1
SMOOTHING: Final = 0.1
ANNEALING_STEPS: Final = 500

Report = Callable[[str, int], object]


@dataclass(frozen=True)
class Method:
    """A way to train: how the network is made ready, and what is maximised.

    Attributes:
        name: As it is shown.
        objective: From the number of training images and the summary.
        bayesian: Whether the network gets a posterior.
        tempered: Whether its confidence is corrected afterwards, on the validation images.
    """

    name: str
    objective: Callable[[int, SummaryLikelihood], Objective]
    bayesian: bool = False
    tempered: bool = False


METHODS: Final = (
    Method("plain", lambda n, _: CrossEntropy(n)),
    Method("plain + temperature", lambda n, _: CrossEntropy(n), tempered=True),
    Method("label smoothing", lambda n, _: LabelSmoothing(SMOOTHING, n)),
    Method("evidential", lambda n, _: Evidential(n, annealing_steps=ANNEALING_STEPS)),
    Method("ELBO", lambda n, _: ELBO(n, kl_weight=KL_WEIGHT), bayesian=True),
    Method("Summary ELBO", lambda n, s: SummaryELBO(s, n, kl_weight=KL_WEIGHT), bayesian=True),
)


def _silent(_what: str, _steps: int) -> None:
    """Say nothing."""


def compare(
    *, seeds: int = 3, steps: int = STEPS, seed: int = 0, device: str = "cpu", report: Report = _silent
) -> dict[str, Any]:
    """Train all methods with all seeds, and test them on clean, corrupted and foreign inputs.

    Args:
        seeds: How many.
        steps: Training steps of each run.
        seed: The first of the seeds.
        device: Where to train.
        report: Called with what is being done and how many steps were taken since the last call.

    Returns:
        Results for `selbo.report.page.write_page`.
    """
    begin = time.perf_counter()
    chosen = range(seed, seed + seeds)
    tasks = {each: noisy_digits(each) for each in chosen}
    summary = summary_of(tasks[seed])
    runs: list[dict[str, Any]] = []
    for each, task in tasks.items():
        trained: dict[str, nn.Module] = {}
        runs += [
            _run(method, task, summary, seed=each, steps=steps, device=device, trained=trained, report=report)
            for method in METHODS
        ]
    first = tasks[seed]
    results: dict[str, Any] = {
        "title": "Six ways to train a classifier of noisy digits",
        "description": DESCRIPTION.format(
            train=len(first.train[1]), val=len(first.val[1]), test=len(first.test[1]), percent=f"{100 * ACCURACY:g}"
        ),
        "conclusion": None,
        "task": {
            "num_train": len(first.train[1]),
            "num_test": len(first.test[1]),
            "num_classes": NUM_CLASSES,
            "class_names": [str(digit) for digit in range(NUM_CLASSES)],
            "class_counts": first.train[1].bincount(minlength=NUM_CLASSES).tolist(),
        },
        "belief": outcomes.belief_of(summary, words_of(first)),
        "methods": [method.name for method in METHODS],
        "seeds": list(chosen),
        "runs": runs,
        "clean": "clean",
        "corruption": "noise added",
        "ood_name": "photographs",
        "made_by": outcomes.made_by(time.perf_counter() - begin),
    }
    results["conclusion"] = conclusion(results)
    return results


DESCRIPTION: Final = """\
{train} handwritten digits of 8 x 8 pixels with noise on every pixel, zeros 7.5 times as frequent as nines; {val} more \
for validation, {test} to test on. All methods train the same small network for the same number of steps on the same \
images. They are tested on clean test images, on images with more noise than they were trained on, and on patches of \
photographs, of which a classifier of digits should not be sure.

The Summary ELBO was told two numbers before training: that about {percent} % of such images can be read, and how \
frequent each digit is. Nothing was tuned on the test images. Temperature scaling uses the labels of the validation \
images, which the others do without."""


def words_of(task: NoisyDigits) -> str:
    """What is believed, in words."""
    rarest, most = min(task.class_fractions), max(task.class_fractions)
    return (
        f"About {100 * ACCURACY:g} % of these images can be read; the most frequent digit makes up "
        f"{100 * most:.0f} % of them and the rarest {100 * rarest:.0f} %."
    )


def summary_of(task: NoisyDigits) -> SummaryLikelihood:
    """The belief of the demonstration, trusted as much as the training images together."""
    belief = expect(ACCURACY, class_fractions=list(task.class_fractions))
    partition = ConfidenceBins(list(EDGES), num_classes=NUM_CLASSES)
    return SummaryLikelihood(partition, belief, concentration=float(len(task.train[1])))


def _run(
    method: Method,
    task: NoisyDigits,
    summary: SummaryLikelihood,
    *,
    seed: int,
    steps: int,
    device: str,
    trained: dict[str, nn.Module],
    report: Report,
) -> dict[str, Any]:
    begin = time.perf_counter()
    objective = method.objective(len(task.train[1]), summary)
    if method.tempered:  # the network is the one trained just before
        network = trained["plain"]
        report(f"{method.name}, seed {seed}", steps)
    else:
        network = MLP((64, HIDDEN, NUM_CLASSES), generator=torch.Generator().manual_seed(seed))
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
            seed=seed,
            device=device,
            callbacks=[note],
            progress=False,
        )
        trained[method.name] = network
    temperature = 1.0
    if method.tempered:
        temperature = calibrate.temperature(_predict(network, objective, task.val[0], 1.0).log_probs, task.val[1])
    labels = task.test[1]
    clean = _predict(network, objective, task.test[0], temperature)
    foreign = _predict(network, objective, task.photographs, temperature)
    conditions = {"clean": outcomes.condition(clean, labels, level=0.0)}
    for level, images in task.corrupted.items():
        noisy = _predict(network, objective, images, temperature)
        conditions[f"noise {level:g}"] = outcomes.condition(noisy, labels, level=level)
    return {
        "method": method.name,
        "seed": seed,
        "conditions": conditions,
        "histogram": outcomes.region_masses(clean, summary.partition),
        "reliability": outcomes.reliability_of(clean, labels),
        "entropy": outcomes.entropies(clean, foreign),
        "ood": outcomes.ood_of(clean, foreign),
        "seconds": time.perf_counter() - begin,
    }


def _predict(network: nn.Module, objective: Objective, images: Tensor, temperature: float) -> Prediction:
    generator = torch.Generator(next(network.parameters()).device).manual_seed(0)
    found = predict(network, images, PREDICTION_DRAWS, objective=objective, generator=generator)
    if temperature == 1.0:
        return found
    log_probs = calibrate.scale(found.log_probs, temperature).to(found.log_probs)
    each = entropy(log_probs=log_probs)
    return Prediction(log_probs.exp(), log_probs, each, each, torch.zeros_like(each))


def conclusion(results: dict[str, Any]) -> str:
    """What the numbers say of the Summary ELBO, whichever way they fall."""
    noisy = noisiest(results)
    assert noisy is not None
    places = {"on clean images": results["clean"], "on the noisiest": noisy[0]}
    sentences = []
    for where, name in places.items():
        rows = {row.method: row.values for row in summarise(results, name, ("nll", "ece"))}
        own = rows["Summary ELBO"]
        for metric, label in (("nll", "NLL"), ("ece", "calibration error")):
            others = {m: v[metric] for m, v in rows.items() if m != "Summary ELBO"}
            rival = min(others, key=lambda m: others[m].mean or 0.0)
            mine, best = own[metric], others[rival]
            if mine.mean is None or best.mean is None:
                continue
            verb = "lower than" if mine.mean < best.mean else "not lower than"
            sentences.append(
                f"{where} its {label} is {mine.mean:.3f}, {verb} the {best.mean:.3f} of the best other, {rival}"
            )
    return "The Summary ELBO: " + "; ".join(sentences) + "."

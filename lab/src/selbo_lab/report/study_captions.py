"""Captions of the tracks and figures on the page of a study."""

from collections.abc import Callable
from typing import Final

from selbo.report import Words, metric_label
from selbo_lab.report.studies import noise_ranges
from selbo_lab.report.study_curves import CURVE_METRICS
from selbo_lab.report.study_data import (
    Point,
    build_titles,
    find_scale,
    find_sweep,
    point,
    sort_corruptions,
)
from selbo_lab.report.study_tables import chosen_by
from selbo_lab.run.records import CLEAN, MethodRuns, StudyComparison

TRACK_WORDS: Final = {
    "published": (
        "The settings of the paper's code, to be held against the paper's numbers. Errors of that code were not "
        "repeated: where one of them changes a number, the table says that the two cannot be compared."
    ),
    "selbo": (
        "Our own settings. They differ from the paper's in more than one way, so that these numbers are to be compared "
        "with each other, not with the paper's."
    ),
}


def track_words(comparison: StudyComparison) -> str:
    """Describe a track, and how settings were chosen."""
    tried = {len(method.tried) for method in comparison.methods if method.tried}
    how = ""
    if tried:
        count = str(*tried) if len(tried) == 1 else f"{min(tried)} to {max(tried)}"
        how = f" Of the {count} settings tried for a method, the one with the lowest {chosen_by(comparison)} was taken."
    return TRACK_WORDS[comparison.track] + how + (_place_words(comparison) if comparison.has_target_domain else "")


def _place_words(comparison: StudyComparison) -> str:
    """Describe source and target domain, and the use of labels."""
    data = comparison.data
    told = f" It was stated that {100 * data.use_accuracy:g} % of the cases in the target domain can be decided."
    few = f" {data.val_size} of them" if data.val_size else " all of them"
    return (
        f"{told if data.use_accuracy else ''} Validation data are from the source domain. Settings were chosen by all "
        "of them on a seed of its own, each class weighted by its fraction in the target domain; in the runs reported "
        f"here,{few} served temperature scaling and BBSE. Unlabelled inputs of the target domain are training examples "
        "without their labels; test examples are in no other part."
    )


CASES: Final = Words(
    "Where each method helps, and where it harms",
    "How far each method is from the reference, case by case; the mean over the seeds.",
    [
        "Blue is better than the reference, red is worse, and the stronger the further; the largest quarter of the "
        "differences has the strongest colour. A cell has no colour where the 95 % interval of the paired difference "
        "holds 0.",
        "Each interval stands for itself: of so many, some miss by chance. A whole row tells more than one cell.",
    ],
    "A table of colours: a row for each method, a column for each case, with the numbers in it.",
)


def _test_set(comparison: StudyComparison) -> str:
    """Name of the test set: clean only if there are corrupted ones."""
    found = sort_corruptions(comparison)
    return "clean test set" if found.levels or found.kinds else "test set"


def _seeds(comparison: StudyComparison) -> str:
    most = max(len(method.runs) for method in comparison.methods)
    return f"mean over {most} seeds, with one standard error to either side" if most > 1 else "one seed"


def _numbers(comparison: StudyComparison, metric: str, found: Callable[[MethodRuns], Point]) -> str:
    titles, scale = build_titles(comparison), find_scale(metric)
    means = [
        f"{titles[method.name]} {scale * found(method).mean:.3g}" for method in comparison.methods if found(method).runs
    ]
    return f"{metric_label(metric)}: {', '.join(means)}." if means else ""


def _scores(comparison: StudyComparison) -> Words:
    return Words(
        "What a belief does to the scores",
        "Histograms of the test scores above, and the scores over a map of the test set below; one training each.",
        [
            "The score is the probability of class 1. The line is the belief s₀, spread over the same bins: where the "
            "bars follow it, the scores look as they were told to. Every histogram has a scale of its own.",
            "The map places similar inputs side by side (t-SNE). Between the examples, the colour is a mean of the "
            "nearest scores: pale where the network is undecided.",
        ],
        "Histograms of scores against the belief and decision surfaces, one per method. "
        + _numbers(comparison, "nll", build_point_getter("nll")),
    )


def _independent(comparison: StudyComparison) -> Words:
    return Words(
        "Every score by itself, or all of them together",
        "The same belief, Beta(5, 5), as a density at every single score, and as a Dirichlet process over all.",
        [
            "The density at every single score is largest when all of them lie where the belief is densest. The "
            "Dirichlet process compares the whole histogram with the line, and asks for its spread as well.",
        ],
        "Histograms of scores and decision surfaces of two methods with the same belief. "
        + _numbers(comparison, "nll", build_point_getter("nll")),
    )


def _sweep(comparison: StudyComparison) -> Words:
    sweep = find_sweep(comparison)
    label = sweep.label if sweep else "a setting"
    without = (
        " A broken line is the method without it, with a band of one standard error." if sweep and sweep.without else ""
    )
    return Words(
        "How much does the setting matter?",
        f"Metrics of the {_test_set(comparison)} against the {label}; {_seeds(comparison)}.",
        [f"Every marker is a method of its own, trained with that value; the axis is logarithmic.{without}"],
        f"Curves against the {label}. " + _numbers(comparison, "nll", build_point_getter("nll")),
    )


def _corruption(comparison: StudyComparison) -> Words:
    found = sort_corruptions(comparison)
    conditions = [name for name in found.levels.values() if name != CLEAN]
    conditions += [name for names in found.kinds.values() for name in names]
    numbers = " ".join(_numbers(comparison, m, lambda method, m=m: point(method, m, conditions)) for m in CURVE_METRICS)  # type: ignore[misc]
    if found.levels:
        under, reading = (
            "Metrics against the noise that was added to the test inputs",
            "From left to right the inputs get worse; the first points are the clean test set."
            + (
                f" The paper shows noise up to {comparison.paper_noise:g}; what lies beyond is grey."
                if len(noise_ranges(comparison)) > 1
                else ""
            ),
        )
    else:
        under, reading = (
            "A row a kind of corruption, the clean test set and the mean over all kinds on top",
            "In a row the methods stand one below the other, in the order of the legend; lines to the sides are one "
            "standard error."
            + (" A row is the mean over severities, a curve below the mean over kinds." if found.severities else ""),
        )
    return Words(
        "What happens when the inputs get worse?",
        f"{under}; {_seeds(comparison)}.",
        [
            reading,
            "Accuracy has to fall. A method that knows when it does not know becomes less confident too: its ECE stays "
            "low, and its NLL rises slowly. A broken line is there to tell methods of the same colour apart.",
        ],
        f"Metrics under corruption, one marker a method. Mean over all corrupted conditions: {numbers}",
    )


def _recall(comparison: StudyComparison) -> Words:
    names = list(comparison.classes)
    return Words(
        "Are rare classes found?",
        f"What part of each class is recognised, from the most frequent one to the rarest; {_seeds(comparison)}.",
        [
            "A method that answers with frequent classes only has a high accuracy, and curves that fall to zero on the "
            "right. The test set has the same frequencies, so that the points on the right stand for few examples.",
        ],
        f"Curves over the classes, from frequent to rare. For {names[-1]}, the rarest, on the {_test_set(comparison)}, "
        + _numbers(comparison, "recall", lambda method: point(method, "recall", of_class=len(names) - 1)),
    )


def _calibration(comparison: StudyComparison) -> Words:
    where = "in the target domain" if comparison.has_target_domain else f"on the {_test_set(comparison)}"
    return Words(
        "Can the stated confidence be trusted?",
        f"Accuracy against confidence {where}, all seeds together, with the number of predictions below.",
        [
            "Of all predictions made with a confidence of 80 %, 80 % should be right: then the marker lies on the "
            "diagonal. Below it a method is overconfident, above it underconfident. A hollow marker stands for fewer "
            "than 30 predictions per run, and says little.",
        ],
        "Reliability diagrams, one per method. "
        + _numbers(comparison, "ece", lambda method: point(method, "ece", [comparison.place])),
    )


def _ood(comparison: StudyComparison) -> Words:
    return Words(
        "Does it notice inputs that belong to no class?",
        "Entropy of the predictions for the test set (filled) and for OOD inputs (line), as shares of each.",
        [
            "The inputs of the line belong to none of the classes: their entropy should be high, and that of the test "
            "set low. AUROC is the chance that an input of the line has the higher entropy of a pair, one from each. A "
            "bar that leaves the panel has its height written beside it.",
        ],
        "Histograms of entropy, one panel a method, for the test set against",
    )


def _belief(comparison: StudyComparison) -> Words:
    told = {run.histogram.belief.words for run in comparison.tested if run.histogram and run.histogram.belief}
    return Words(
        "Do the predictions look like the belief?",
        "Where test predictions fall, region by region, against the belief s₀ that the method was told.",
        [
            "A pale bar with a cap is the belief: the share of all predictions that should fall into a region. The "
            "coloured bar is the share that does, as a mean over the seeds. The distance over a panel is the share "
            "that would have to move (total variation).",
            f"Beliefs: {', '.join(sorted(told))}.",
        ],
        "Bars of region masses against the belief, one panel a method.",
    )


def build_point_getter(metric: str) -> Callable[[MethodRuns], Point]:
    """A metric of a method on the clean test set."""
    return lambda method: point(method, metric)


FIGURE_WORDS: Final[dict[str, Callable[[StudyComparison], Words]]] = {
    "scores": _scores,
    "independent": _independent,
    "sweep": _sweep,
    "corruption": _corruption,
    "recall": _recall,
    "calibration": _calibration,
    "ood": _ood,
    "belief": _belief,
}

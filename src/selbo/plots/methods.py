"""One colour, marker and line style per method, the same in every figure, table and report."""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple
from zlib import crc32

METHOD_COLOURS: Final = ("#2a63d4", "#93420c", "#3c9d63", "#e0609f", "#505860", "#4d1a72", "#b48400", "#500a14")
"""Contrast of at least 3.3 to 1 against white, for lines, and distances of at least 21 in CIELAB, with normal sight
and with each of three kinds of colour blindness (Machado et al., 2009, severity 1). `PALETTE` is too light for it."""

METHOD_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")

Line = Literal["-", "--", "-.", ":"]
BROKEN: Final[tuple[Line, ...]] = ("--", "-.", ":")

KNOWN: Final = (
    # blue: the Summary ELBO with a stated belief
    (
        *(
            "summary summary-elbo base both belief-accuracy labels-belief pool pool-belief",
            "fractions belief labels-belief-accuracy pool-fractions pool-belief-low-5",
            "summary-train train accuracy dirichlet-accuracy labels-trained-accuracy pool-accuracy pool-belief-high-5",
            "expect-equal dirichlet labels-exact accuracy-high-2 fractions-high-5 pool-both pool-belief-high-10",
            "expect-unequal multinomial-accuracy labels-exact-accuracy accuracy-low-2 fractions-low-5 pool-labels",
        ),
        *(
            "auto-equal fractions-0.3 natural-summary labels-exact-trained bold accuracy-high-5",
            "auto-unequal fractions-1 narrow-summary timid accuracy-low-5",
            "beta-5 uncertain-0.1 exact wide-summary natural-summary-85 accuracy-high-10 both-fractions-high-5",
            "uncertain-0.05 exact-accuracy natural-summary-80 accuracy-low-10 both-fractions-low-5",
        ),
        *("unadjusted-3 trained-accuracy",),
    ),
    # brown: the ELBO, and standard deviations of the prior
    (
        *(
            "elbo none labels network",
            "elbo-known natural labels-prior fixed-precision pool-prior",
            "elbo-em elbo-em-bcts narrow exact-trained pool-prior-low-5",
            "elbo-bbse prior-0.02 wide natural-pair pool-prior-high-5",
            "prior-0.05 prior-0.2 pool-prior-high-10",
            "prior-0.1",
        ),
        *("prior-0.25", "prior-0.5", "prior-1 prior-1.0", "prior-2"),
    ),
    # green: label smoothing, self-training; forms of the histogram, stated fractions
    (
        *(
            "label-smoothing isotonic-1000 easy-llp forest-calibrated forest-prior",
            "self-training bcts-1000 forest-prior-low-5 forest-tuned",
            "logistic-self-training forest-prior-high-5",
            "steep fractions+0.1 forest-prior-high-10",
            "published-histogram",
        ),
        *("unequal fractions+0.2", "beta-0.1"),
    ),
    # pink: evidential, entropy minimisation; other beliefs
    (
        *(
            "evidential mean-map logistic logistic-prior",
            "entropy logistic-cv logistic-prior-low-5",
            "published-belief accuracy-0.1 logistic-prior-high-5 logistic-tuned",
            "empirical both-low-5 accuracy-0.05 logistic-prior-high-10",
            "low both-high-5 accuracy+0.05",
        ),
        *("high both-low-2 accuracy+0.1", "beta-1 both-high-2"),
    ),
    # grey: the ensemble, label spreading; concentrations, samples per step
    (
        *(
            "ensemble deep-ensemble batch llp-vat constant",
            "label-spreading constant-low-5",
            "draws-1 alpha-0.003 alpha-100 constant-high-5",
            "draws-4 alpha-0.01 alpha-500 constant-high-10",
        ),
        *("draws-8 alpha-0.03 alpha-1000", "draws-32 alpha-0.1", "pooled-4 alpha-0.3", "alpha-1 alpha-3 alpha-5000"),
        *("alpha-10", "alpha-30 alpha-10000"),
    ),
    # purple: the deterministic network; numbers of inputs, weights of the KL divergence
    (
        *(
            "plain raw all-labels mlp-temperature",
            "plain-known sgd known",
            "plain-em plain-em-bcts adam em",
            "plain-bbse rlls",
            "kl-0.01 inputs-100 known-high-5",
            "kl-0.03 inputs-300 known-low-5",
        ),
        *("kl-0.1 inputs-1000", "kl-0.3", "kl-1.0"),
    ),
    # amber: plain + summary, expectation regularisation; other forms of the summary
    (
        *(
            "plain-summary proportion labels-proportion trees-stopped logistic-0.1-prior",
            "expectation sgd-summary proportion-exact logistic-0.1-prior-low-5 trees-tuned",
            "multinomial warm-up expectation-shift logistic-0.1-prior-high-5",
            "ema pretrained expectation-bayes logistic-0.1-prior-high-10",
        ),
        *("val-inputs plain-fractions", "independent-5"),
    ),
    # maroon: temperature scaling; vague beliefs; networks adapted by BatchNorm
    (
        "plain-temperature temperature-100 group-rate lightgbm",
        "uniform uniform-equal batchnorm mc-dropout temperature-20 lightgbm-tuned",
        "uniform-unequal batchnorm-known swag temperature-1000",
        "confidence tent laplace bcts-100",
        "source-temperature lascal",
    ),
)
"""Methods of the demo, the commands and the studies: one row per colour, one position per marker.

Names that share a position are one method, or never occur in the same comparison. Append a new method to the end of a
row, so that no other method changes its style. `method_styles` assigns a style to other names.
"""


class MethodStyle(NamedTuple):
    """Style of a method in all figures."""

    colour: str
    marker: str
    line: Line = "-"


def _look(row: int, place: int) -> MethodStyle:
    """The first position of every row has a solid line and its own marker."""
    line = BROKEN[(place - 1) % len(BROKEN)] if place else "-"
    return MethodStyle(METHOD_COLOURS[row], METHOD_MARKERS[(row + place) % len(METHOD_MARKERS)], line)


_LOOKS: Final = {
    name: _look(row, place)
    for row, places in enumerate(KNOWN)
    for place, names in enumerate(places)
    for name in names.split()
}


def method_styles(methods: Iterable[str]) -> dict[str, MethodStyle]:
    """Styles of methods, by name.

    A known method has the same style in every comparison. An unknown method gets a colour from its name, or the next
    free one if another method of the comparison has it; the order of the methods does not matter. From the ninth
    unknown method on, colours repeat, with other markers and a broken line.

    Args:
        methods: Names as in `selbo.presets` or a study, or displayed names: ``"summary_elbo"``, ``"summary"`` and
            ``"Summary ELBO"`` are the same.

    Example:
        >>> method_styles(["plain", "ELBO"])["ELBO"]
        MethodStyle(colour='#93420c', marker='s', line='-')
        >>> method_styles(["summary"])["summary"]
        MethodStyle(colour='#2a63d4', marker='o', line='-')
        >>> method_styles(["Summary ELBO"])["Summary ELBO"]
        MethodStyle(colour='#2a63d4', marker='o', line='-')
    """
    names, found = list(dict.fromkeys(methods)), dict[str, MethodStyle]()
    for name in sorted(names, key=lambda name: (_key(name) not in _LOOKS, name)):
        look, taken = _LOOKS.get(_key(name)), set(found.values())
        found[name] = _free(name, taken) if look is None or look in taken else look
    return {name: found[name] for name in names}


def _key(name: str) -> str:
    return name.lower().replace(" + ", "-").replace(" ", "-").replace("_", "-")


def _free(name: str, taken: set[MethodStyle]) -> MethodStyle:
    """A style for an unknown method: with a free colour if there is one, else a free marker, else any."""
    colours, markers = len(METHOD_COLOURS), len(METHOD_MARKERS)
    start = crc32(_key(name).encode())
    used = {each.colour for each in taken}
    for i in range(colours):
        look = _look((start + i) % colours, start // colours % markers)
        if look.colour not in used:
            return look._replace(line="-")
    every = colours * (markers - 1)  # the first position of a row has a solid line
    looks = [_look(each % colours, 1 + each // colours) for each in ((start + i) % every for i in range(every))]
    same = {(each.colour, each.marker) for each in taken}
    return next((look for look in looks if (look.colour, look.marker) not in same), looks[0])

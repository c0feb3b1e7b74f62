"""The style of every method of the studies, the same in every figure, table and page."""

from collections.abc import Iterable
from typing import Final

from selbo.plots import MethodStyle, method_styles

STUDY_METHODS: Final = (
    # blue: the Summary ELBO with a stated belief
    (
        *(
            "base both belief-accuracy labels-belief pool pool-belief",
            "fractions belief labels-belief-accuracy pool-fractions pool-belief-low-5",
            "summary-train train accuracy dirichlet-accuracy labels-trained-accuracy pool-accuracy exact-small"
            " pool-belief-high-5",
            "expect-equal dirichlet labels-exact accuracy-high-2 fractions-high-5 pool-both pool-belief-high-10"
            " exact-calibrated",
            "expect-unequal multinomial-accuracy labels-exact-accuracy accuracy-low-2 fractions-low-5 pool-labels",
        ),
        *(
            "auto-equal fractions-0.3 natural-summary labels-exact-trained bold accuracy-high-5 swag-summary",
            "auto-unequal fractions-1 narrow-summary timid accuracy-low-5 ensemble-summary exact-gaussian-accuracy",
            "beta-5 uncertain-0.1 exact wide-summary natural-summary-85 accuracy-high-10"
            " both-fractions-high-5 mc-dropout-summary",
            "uncertain-0.05 exact-accuracy exact-small-accuracy natural-summary-80 accuracy-low-10"
            " both-fractions-low-5 laplace-summary narrow-unlabelled",
        ),
        *("unadjusted-3 trained-accuracy exact-self natural-summary-same exact-gaussian",),
    ),
    # brown: the ELBO, and standard deviations of the prior
    (
        *(
            "none labels network",
            "elbo-known natural labels-prior fixed-precision pool-prior",
            "elbo-em elbo-em-bcts narrow exact-trained pool-prior-low-5 labels-wide",
            "elbo-bbse prior-0.02 elbo-mixed wide natural-pair pool-prior-high-5 labels-prior-wide",
            "prior-0.05 prior-0.2 pool-prior-high-10 narrowest",
            "prior-0.1",
        ),
        *("prior-0.25", "prior-0.5", "prior-1 prior-1.0", "prior-2"),
    ),
    # green: label smoothing, self-training; forms of the histogram, stated fractions
    (
        *(
            "isotonic-1000 easy-llp forest-calibrated forest-prior",
            "self-training bcts-1000 forest-prior-low-5 forest-tuned easy-llp-wide",
            "logistic-self-training forest-prior-high-5",
            "steep fractions+0.1 forest-prior-high-10",
            "published-histogram",
        ),
        *("unequal fractions+0.2", "beta-0.1"),
    ),
    # pink: evidential, entropy minimisation; other beliefs
    (
        *(
            "mean-map logistic logistic-prior",
            "entropy logistic-cv logistic-prior-low-5 mean-map-wide",
            "published-belief accuracy-0.1 logistic-prior-high-5 logistic-tuned",
            "empirical both-low-5 accuracy-0.05 logistic-prior-high-10",
            "low both-high-5 accuracy+0.05",
        ),
        *("high both-low-2 accuracy+0.1", "beta-1 both-high-2"),
    ),
    # grey: the ensemble, label spreading; concentrations, samples per step
    (
        *(
            "deep-ensemble batch llp-vat constant",
            "label-spreading constant-low-5 llp-vat-wide",
            "draws-1 alpha-0.003 alpha-100 constant-high-5",
            "draws-4 alpha-0.01 alpha-500 constant-high-10",
        ),
        *("draws-8 alpha-0.03 alpha-1000", "draws-32 alpha-0.1", "pooled-4 alpha-0.3", "alpha-1 alpha-3 alpha-5000"),
        *("alpha-10", "alpha-30 alpha-10000"),
    ),
    # purple: the deterministic network; numbers of inputs, weights of the KL divergence
    (
        *(
            "raw all-labels mlp-temperature",
            "plain-known sgd known",
            "plain-em plain-em-bcts adam em",
            "plain-bbse rlls plain-sgd",
            "kl-0.01 inputs-100 known-high-5 plain-sgd-known",
            "kl-0.03 inputs-300 known-low-5",
        ),
        *("kl-0.1 inputs-1000", "kl-0.3", "kl-1.0"),
    ),
    # amber: plain + summary, expectation regularisation; other forms of the summary
    (
        *(
            "proportion labels-proportion trees-stopped logistic-0.1-prior",
            "expectation sgd-summary proportion-exact logistic-0.1-prior-low-5 trees-tuned labels-proportion-exact",
            "multinomial warm-up expectation-shift logistic-0.1-prior-high-5 proportion-exact-accuracy"
            " labels-proportion-exact-accuracy sgd-unlabelled",
            "ema pretrained expectation-bayes logistic-0.1-prior-high-10 proportion-wide labels-proportion-wide"
            " proportion-calibrated",
        ),
        *(
            "val-inputs plain-fractions proportion-exact-wide",
            "independent-5 proportion-exact-accuracy-wide proportion-self",
            "sgd-fractions",
            "sgd-fractions-batchnorm",
            "sgd-mixed",
        ),
    ),
    # maroon: temperature scaling; vague beliefs; networks adapted by BatchNorm
    (
        "temperature-100 group-rate lightgbm",
        "uniform uniform-equal batchnorm mc-dropout temperature-20 lightgbm-tuned",
        "uniform-unequal batchnorm-known swag temperature-1000",
        "confidence tent laplace bcts-100",
        "source-temperature lascal batchnorm-sgd",
    ),
)
"""Methods of the studies, beside those that the library knows: one row per colour, one position per marker.

Names that share a position are one method, or never occur in the same comparison. Append a new method to the end of a
row, so that no other method changes its style.
"""


def study_styles(methods: Iterable[str]) -> dict[str, MethodStyle]:
    """Styles of methods of a study, by name.

    Example:
        >>> study_styles(["base"]) == {"base": study_styles(["summary"])["summary"]}
        True
    """
    return method_styles(methods, STUDY_METHODS)

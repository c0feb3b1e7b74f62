"""A run is data: whatever decides its numbers is in a `RunSpec`, whose hash is its identity."""

import hashlib
import json
from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Final

from selbo_lab import checks

RUN_FORMAT: Final = "selbo-run-1"
"""Enters the hash of a run: a change of it makes all earlier results those of other runs."""

OBJECTIVES: Final = (
    "cross_entropy",
    "label_smoothing",
    "evidential",
    "elbo",
    "summary_elbo",
    "independent_summary",
    "entropy_minimisation",
    "expectation_regularisation",
    "label_spreading",
    "logistic_self_training",
)
STARTS: Final = ("network", "published", "relative")
SUITES: Final = ("", "noise", "mnist-c", "cifar10-c", "cifar10-im-c")

TWO_PLACES: Final = (
    "labels",
    "label_fractions",
    "use_fractions",
    "use_noise",
    "use_corruption",
    "use_accuracy",
    "unlabelled",
    "val_size",
    "standardised",
    "fractions_off",
    "random_pool",
)
"""Fields of data with a place of use."""

ADDED_LATER: Final = {
    "data": (*TWO_PLACES, "normalised"),
    "recipe": (
        "summary_inputs",
        "summary_warmup",
        "pretraining",
        "unlabelled_inputs",
        "unlabelled_weight",
        "correction",
        "rounds",
        "threshold",
        "neighbours",
        "clamping",
        "inverse_penalty",
        "eval_every",
        "annealing_every",
        "label_shift",
        "fraction_uncertainty",
        "adaptation",
        "adaptation_rate",
        "adaptation_epochs",
    ),
    "evaluation": ("both_columns", "items"),
}
"""Fields that came after results had been published: at their defaults they do not enter the hash of a run, so that it
stays what it was."""

SUMMARY_INPUTS: Final = ("train", "val", "use")
CORRECTIONS: Final = ("", "known", "em", "em-bcts", "bbse")
ADAPTATIONS: Final = ("", "batchnorm", "tent")


@dataclass(frozen=True)
class DataSpec:
    """The data of a run.

    With ``labels`` there are two places: labels come from one, and the network is used in another, of which there are
    inputs without labels (`selbo_lab.run.domains`).

    Attributes:
        name: Of a set in `selbo_lab.data.catalogue`.
        train_size: Number of training examples, drawn with the seed of the run; all if 0.
        encoder: Of sentences; the one in the store if empty.
        generated: Tiny data of the same shape, made on the spot, in the place of the real ones.
        labels: Number of labelled training examples, where the rest may serve without labels; 0 for one place only.
        label_fractions: Fraction of each class where labels come from; as the data have it if empty.
        use_fractions: Fraction of each class at the place of use; as the data have it if empty.
        use_noise: Weight of the noise that features are mixed with at the place of use.
        use_corruption: Of images at the place of use: ``fog`` of MNIST-C, ``fog 3`` of CIFAR-10-C.
        use_accuracy: What a user states of the place of use: the share of cases that can be decided.
        unlabelled: Number of inputs of the place of use, without labels; as many as there are if 0.
        val_size: Number of validation examples, drawn with the seed; all if 0, as in runs that settings are chosen by.
        standardised: Whether features are brought to mean 0 and spread 1 over the training part, which needs no label.
        fractions_off: How much more frequent class 0 is said to be at the place of use than it is; the other classes
            give it in proportion.
        random_pool: Whether unlabelled inputs are drawn one by one from the classes, so that their fractions are only
            about those at the place of use, and not in exact numbers.
        normalised: Whether pixels are normalised by mean and standard deviation of the training images; if not, bytes
            are divided by 255 and nothing else, in all sets that the network sees.
    """

    name: str
    train_size: int = 0
    encoder: str = ""
    generated: bool = False
    labels: int = 0
    label_fractions: tuple[float, ...] = ()
    use_fractions: tuple[float, ...] = ()
    use_noise: float = 0.0
    use_corruption: str = ""
    use_accuracy: float = 0.0
    unlabelled: int = 0
    val_size: int = 0
    standardised: bool = False
    fractions_off: float = 0.0
    random_pool: bool = False
    normalised: bool = True

    def __post_init__(self) -> None:
        for name in ("label_fractions", "use_fractions"):
            if getattr(self, name):
                checks.simplex(name, getattr(self, name))
        elsewhere = any(getattr(self, name) != getattr(DataSpec, name) for name in TWO_PLACES)
        if elsewhere and not self.labels:
            raise ValueError("`labels` must be given for data with a place of use, but is 0")


@dataclass(frozen=True)
class ModelSpec:
    """The network of a run.

    Attributes:
        name: ``mlp``, ``lenet``, ``vgg11``, ``convnet-published``, the authors' ConvNet, or ``convnet``, the same with
            padding in all convolutions.
        hidden: Hidden units of an MLP.
        width: Factor of the channels of VGG11.
    """

    name: str
    hidden: tuple[int, ...] = ()
    width: float = 1.0


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Attributes:
        objective: What is maximised.
        steps: Of training.
        batch_size: Examples a step.
        draws: Weight draws a step.
        optimizer: ``adam`` or ``sgd``.
        learning_rate: Where it starts.
        schedule: ``constant``, ``cosine`` or ``plateau``.
        weight_decay: Of plain networks.
        augment: ``crop_and_flip``, or nothing.
        select: Weights to end with: ``last``, ``best`` or ``best_f1``.
        precision: ``fp32``, or ``bf16`` for the forward pass.
        bayesian: Whether weights have a posterior.
        start: How posteriors start: ``network``, from the network's own weights with ``init_std``; ``published``, from
            N(0, .1²) with standard deviations about .049, as the paper's code; ``relative``, ``init_std`` times the
            size of each weight, as the paper's code does for VGG11.
        init_std: Standard deviation that posteriors start from.
        prior_std: Of the prior.
        kl_weight: Factor of the KL.
        kl_reduction: ``sum``, or ``published``.
        epsilon: Of label smoothing.
        annealing_steps: Over which the divergence of evidential learning grows.
        annealing_every: Steps between two rises of its weight, such as those of an epoch; if 0, it rises at every step.
        activation: Of evidential learning.
        partition: Where the summary looks; see `selbo_lab.run.build.partition_of`.
        belief: What it says; see `selbo_lab.run.build.parse_belief`.
        concentration: Trust in it, in pseudo-observations.
        per_example: Whether ``concentration`` is a multiple of the number of training examples.
        form: ``dirichlet`` or ``multinomial``.
        pool_draws: One histogram for all draws.
        ema_decay: Memory of the histogram; 0 for none.
        members: Networks of an ensemble.
        summary_inputs: What the summary speaks of: ``train``, the training inputs; ``val``, those of the validation
            set, without their labels; or ``use``, unlabelled ones of the place of use.
        summary_warmup: Steps over which the summary term grows in; -1 to wait for the labels (`selbo.labels_first`).
        pretraining: Steps of training without the summary, before all others.
        unlabelled_inputs: How many of the unlabelled inputs are looked at; all if 0.
        unlabelled_weight: Of the term on unlabelled inputs, in entropy minimisation and expectation regularisation.
        correction: Of predictions at the place of use, by the ratio of class fractions: ``known`` ones, or estimated
            by ``em``, ``em-bcts`` (after bias-corrected temperature scaling) or ``bbse``; see
            `selbo.evaluation.label_shift`.
        rounds: Of self-training: the network is trained anew with its own predictions for unlabelled inputs as labels.
        threshold: Confidence from which a prediction becomes a label.
        neighbours: Of label spreading; a Gaussian kernel if 0.
        clamping: Of label spreading, how far labels may change.
        inverse_penalty: Of logistic regression, C.
        eval_every: Steps between validations; as `selbo.fit` chooses if 0.
        label_shift: Whether summaries, and then the predictions at the place of use, are corrected for the class
            fractions there (`selbo.LabelShift`).
        fraction_uncertainty: How far class fractions of the belief ``fractions`` may be off.
        adaptation: Of the trained network to unlabelled inputs of the target domain: ``batchnorm``, the statistics of
            BatchNorm are estimated on them; ``tent``, its scales and shifts are trained as well, to minimise the
            entropy of predictions (`selbo_lab.run.adaptation`). For deterministic networks with BatchNorm. All
            predictions are those of the adapted network. There are no labels of the target domain, so settings are
            chosen as those of all methods: by its validation NLL in the source domain, classes weighted to their
            fractions in the target domain.
        adaptation_rate: Learning rate of ``tent``.
        adaptation_epochs: Passes of ``tent`` over the unlabelled inputs.
    """

    objective: str
    steps: int = 2000
    batch_size: int = 256
    draws: int = 1
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    schedule: str = "constant"
    weight_decay: float = 0.0
    augment: str = ""
    select: str = "last"
    precision: str = "fp32"
    bayesian: bool = False
    start: str = "network"
    init_std: float = 0.01
    prior_std: float = 1.0
    kl_weight: float = 1.0
    kl_reduction: str = "sum"
    epsilon: float = 0.0
    annealing_steps: int = 1000
    activation: str = "softplus"
    partition: str = ""
    belief: str = ""
    concentration: float = 1000.0
    per_example: bool = False
    form: str = "dirichlet"
    pool_draws: bool = False
    ema_decay: float = 0.0
    members: int = 1
    summary_inputs: str = "train"
    summary_warmup: int = 0
    pretraining: int = 0
    unlabelled_inputs: int = 0
    unlabelled_weight: float = 1.0
    correction: str = ""
    rounds: int = 0
    threshold: float = 0.9
    neighbours: int = 7
    clamping: float = 0.2
    inverse_penalty: float = 1.0
    eval_every: int = 0
    label_shift: bool = False
    fraction_uncertainty: float = 0.0
    annealing_every: int = 0
    adaptation: str = ""
    adaptation_rate: float = 1e-3
    adaptation_epochs: int = 1

    def __post_init__(self) -> None:
        checks.one_of("objective", self.objective, OBJECTIVES)
        checks.one_of("correction", self.correction, CORRECTIONS)
        checks.one_of("adaptation", self.adaptation, ADAPTATIONS)
        checks.positive("adaptation_rate", self.adaptation_rate)
        checks.whole("adaptation_epochs", self.adaptation_epochs, at_least=1)
        checks.one_of("summary_inputs", self.summary_inputs, SUMMARY_INPUTS)
        checks.one_of("start", self.start, STARTS)
        if self.objective in {"elbo", "summary_elbo", "independent_summary"} and not self.bayesian:
            raise ValueError(f"`bayesian` must be true for the objective {self.objective!r}, but is not")
        if self.adaptation and self.bayesian:
            raise ValueError(
                f"`adaptation` is for deterministic networks, but got {self.adaptation!r} for a Bayesian one"
            )
        if bool(self.partition) != bool(self.belief):
            raise ValueError(f"`partition` and `belief` belong together, but got {self.partition!r}, {self.belief!r}")
        if self.objective in {"summary_elbo", "independent_summary"} and not self.belief:
            raise ValueError(f"`belief` must be given for the objective {self.objective!r}")

    @property
    def told(self) -> bool:
        """Whether training is told anything of the place of use."""
        return bool(self.belief) or self.label_shift or self.objective == "expectation_regularisation"

    @property
    def believes(self) -> bool:
        """Whether a belief is given, and the objective looks at it."""
        return bool(self.belief) and self.objective in {"cross_entropy", "summary_elbo", "independent_summary"}


@dataclass(frozen=True)
class EvaluationSpec:
    """What a trained network is tested on.

    Attributes:
        draws: Weight draws a prediction.
        test: Whether to look at test data at all; a run that settings are chosen by does not.
        suite: Corrupted test sets: ``noise`` on features, ``mnist-c``, ``cifar10-c``, ``cifar10-im-c``, or none.
        levels: Strengths of the noise.
        corruptions: Names of the corruptions; all if empty.
        severities: Of the corruptions that have them; all if empty.
        corrupted_draws: Weight draws a prediction there; as many as elsewhere if 0.
        ood: Names of foreign sets.
        ood_if_present: Names of more of them, which are used where they are in the store.
        scores: Whether the scores of all test examples are kept, with a map of the test set in two dimensions.
        items: Whether the negative log-probability of every test label at the place of use is kept.
        both_columns: Whether the AUROC of two classes is the mean of both columns, as in the paper's code, and not that
            of class 1.
    """

    draws: int = 128
    test: bool = True
    suite: str = ""
    levels: tuple[float, ...] = ()
    corruptions: tuple[str, ...] = ()
    severities: tuple[int, ...] = ()
    corrupted_draws: int = 0
    ood: tuple[str, ...] = ()
    ood_if_present: tuple[str, ...] = ()
    scores: bool = False
    items: bool = False
    both_columns: bool = False

    def __post_init__(self) -> None:
        checks.one_of("suite", self.suite, SUITES)


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides the numbers of one run."""

    data: DataSpec
    model: ModelSpec
    recipe: Recipe
    evaluation: EvaluationSpec
    seed: int

    @cached_property
    def training(self) -> Hashable:
        """What its networks come from: runs that agree in it, such as those that differ in a correction, share them."""
        data = self.data if self.recipe.told else replace(self.data, fractions_off=0.0)
        return data, self.model, replace(self.recipe, correction=""), self.seed

    @cached_property
    def id(self) -> str:
        """Hash of the whole configuration."""
        parts = {
            name: _hashed_settings(name, getattr(self, name)) for name in ("data", "model", "recipe", "evaluation")
        }
        text = json.dumps({"format": RUN_FORMAT, **parts, "seed": self.seed}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@cache
def _hashed_settings(part: str, values: DataSpec | ModelSpec | Recipe | EvaluationSpec) -> dict[str, object]:
    """Settings that enter the hash of a run; many runs share them."""
    later = ADDED_LATER.get(part, ())
    return {
        each.name: getattr(values, each.name)
        for each in fields(values)
        if not (each.name in later and getattr(values, each.name) == each.default)
    }

"""Settings of a run: a `RunSpec` holds everything that affects its numbers, and its hash is the id of the run."""

import hashlib
import json
from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Final

from selbo.checks import one_of, positive, simplex, whole

RUN_FORMAT: Final = "selbo-run-1"
"""Part of the hash of a run: changing it invalidates all earlier results."""

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
    "logistic",
    "forest",
    "boosted_trees",
    "zero_shot",
    "group_belief",
    "proportion_loss",
    "easy_llp",
    "mean_map",
    "llp_vat",
    "group_rate",
    "few_labels",
    "all_labels",
    "constant",
    "logistic_cv",
    "calibrated_forest",
    "stopped_trees",
    "lightgbm",
    "tuned_logistic",
    "tuned_forest",
    "tuned_trees",
    "tuned_lightgbm",
    "scaled_mlp",
    "pool",
    "summary_network",
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
    "prevalences",
)
"""Fields of data with a target domain."""

OF_GROUPS: Final = (
    "groups",
    "group_size",
    "least_group",
    "official",
    "fraction_noise",
    "stated_deviation",
    "stated_concentration",
    "group_accuracy",
    "few_labels",
)
"""Fields of data whose class fractions are known by group."""

ADDED_LATER: Final = {
    "data": (*TWO_PLACES, "normalised", *OF_GROUPS, "table"),
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
        "posterior",
        "initial_curvature",
        "curvature_decay",
        "rate_warmup",
        "momentum",
        "posthoc",
        "swag_steps",
        "swag_rate",
        "swag_every",
        "swag_rank",
        "prior_precision",
        "posterior_scale",
        "scale_belief",
        "states_accuracy",
        "states_fractions",
        "accuracy_off",
        "target_labels",
        "vat_weight",
        "vat_radius",
        "fractions_off",
        "states_label_fractions",
        "accuracy_concentration",
        "exact_counts",
        "exact_up_to",
        "calibrated_by_counts",
    ),
    "evaluation": ("both_columns", "items", "halves"),
}
"""Fields added after results had been published: at their defaults they do not enter the hash of a run, so that
earlier hashes stay valid."""

SUMMARY_INPUTS: Final = ("train", "val", "use")
FROZEN_CORRECTIONS: Final = (
    "belief",
    "batch",
    "temperature",
    "source-temperature",
    "bcts",
    "isotonic",
    "rlls",
    "lascal",
)
CORRECTIONS: Final = ("", "known", "em", "em-bcts", "bbse", *FROZEN_CORRECTIONS)
ADAPTATIONS: Final = ("", "batchnorm", "tent")
TRAINED_POSTERIORS: Final = ("", "natural_gradient")
POSTHOC: Final = ("", "mc_dropout", "swag", "laplace")


@dataclass(frozen=True)
class DataSpec:
    """The data of a run.

    With ``labels`` there are two domains: labels come from the source domain, and unlabelled inputs from the target
    domain (`selbo_lab.run.domains`).

    Attributes:
        name: Name of a data set in `selbo_lab.data.catalogue`.
        train_size: Number of training examples, chosen with the seed of the run; all if 0.
        encoder: Encoder of sentences; the one in the store if empty.
        generated: Use tiny generated data of the same shape instead of the real data.
        labels: Number of labelled training examples; the others may be used without labels. 0 for a single domain.
        label_fractions: Class fractions of the source domain; those of the data if empty.
        use_fractions: Class fractions of the target domain; those of the data if empty.
        use_noise: Weight of the noise mixed into the features of the target domain.
        use_corruption: Corruption of the images of the target domain: ``fog`` of MNIST-C, ``fog 3`` of CIFAR-10-C.
        use_accuracy: Accuracy stated for the target domain: the share of cases that can be classified correctly.
        unlabelled: Number of unlabelled inputs of the target domain; all if 0.
        val_size: Number of validation examples, chosen with the seed; all if 0, as in tuning runs.
        standardised: Whether features are standardised by the training part, which needs no labels.
        fractions_off: Error of the stated fraction of class 0 in the target domain; the other classes change in
            proportion.
        random_pool: Whether the classes of unlabelled inputs are sampled independently, so that their fractions match
            those of the target domain only approximately.
        prevalences: Number of target domains, if there are many: each has class fractions drawn uniformly from the
            simplex, its own sample of unlabelled inputs and its own test sample. Results are means over them.
        normalised: Whether pixels are normalised by the mean and standard deviation of the training images; if not,
            bytes are only divided by 255, in all data sets that the network sees.
        groups: Groups whose class fractions are known: a column of a table, two of them as in ``education x
            occupation``, ``random`` for random bags, or ``uneven`` for bags with random class fractions; see
            `selbo_lab.run.group_cases`. Empty for none.
        group_size: Number of examples of a bag.
        least_group: Minimum number of training rows of a group; rows of smaller groups are not used.
        official: Whether fractions are official ones instead of those of the training rows.
        fraction_noise: Standard deviation of errors that are added to the fractions.
        stated_deviation: Standard deviation of the fractions that a belief states; if 0, they were counted.
        stated_concentration: Concentration that a belief states for every group, instead of a deviation.
        group_accuracy: Accuracy that a belief states.
        few_labels: Number of training rows whose labels are known besides.
        table: Name of a table of the set ``keel``, on which classifiers at their defaults are compared; see
            `selbo_lab.run.table_cases`. Empty for other sets.
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
    prevalences: int = 0
    normalised: bool = True
    groups: str = ""
    group_size: int = 0
    least_group: int = 0
    official: bool = False
    fraction_noise: float = 0.0
    stated_deviation: float = 0.0
    stated_concentration: float = 0.0
    group_accuracy: float = 0.0
    few_labels: int = 0
    table: str = ""

    def __post_init__(self) -> None:
        for name in ("label_fractions", "use_fractions"):
            if getattr(self, name):
                simplex(name, getattr(self, name))
        elsewhere = any(getattr(self, name) != getattr(DataSpec, name) for name in TWO_PLACES)
        if elsewhere and not self.labels:
            raise ValueError("`labels` must be given for data with a target domain, but is 0")
        if self.prevalences and (self.use_fractions or self.fractions_off or self.random_pool):
            raise ValueError("`prevalences` are class fractions of the target domain, but others are given too")
        for name in OF_GROUPS[1:]:
            if getattr(self, name) != getattr(DataSpec, name) and not self.groups:
                raise ValueError(f"`{name}` is about `groups`, but there are none")
        if self.stated_deviation and self.stated_concentration:
            raise ValueError("either `stated_deviation` or `stated_concentration` must be given, but got both")


@dataclass(frozen=True)
class ModelSpec:
    """The network of a run.

    Attributes:
        name: ``mlp``, ``lenet``, ``vgg11``, ``resnet20``, ``convnet-published``, the authors' ConvNet, or
            ``convnet``, the same with padding in all convolutions.
        hidden: Hidden units of an MLP.
        width: Factor for the number of channels of VGG11, ResNet-20 and ConvNet.
    """

    name: str
    hidden: tuple[int, ...] = ()
    width: float = 1.0


@dataclass(frozen=True)
class Recipe:
    """Training settings of a network.

    Attributes:
        objective: Objective to maximise.
        steps: Number of training steps.
        batch_size: Examples per step.
        draws: Weight samples per step.
        optimizer: ``adam`` or ``sgd``.
        learning_rate: Initial learning rate.
        schedule: ``constant``, ``cosine`` or ``plateau``.
        weight_decay: Weight decay of deterministic networks.
        augment: ``crop_and_flip``, ``shift_and_flip``, or empty for none.
        select: Weights to keep: ``last``, ``best`` or ``best_f1``.
        precision: ``fp32``, or ``bf16`` for the forward pass.
        bayesian: Whether weights have a posterior.
        start: Initial posteriors: ``network``, the network's own weights with ``init_std``; ``published``, N(0, .1²)
            with standard deviations about .049, as in the paper's code; ``relative``, ``init_std`` times the size of
            each weight, as in the paper's code for VGG11.
        init_std: Initial standard deviation of the posteriors.
        prior_std: Standard deviation of the prior.
        kl_weight: Weight of the KL divergence.
        kl_reduction: ``sum``, or ``published``.
        epsilon: Parameter of label smoothing.
        annealing_steps: Steps over which the divergence of evidential learning grows.
        annealing_every: Steps between two increases of its weight, such as those of an epoch; every step if 0.
        activation: Activation of evidential learning.
        partition: Regions of the summary; see `selbo_lab.run.build.parse_partition`.
        belief: Belief of the summary; see `selbo_lab.run.build.parse_belief`.
        concentration: Prior strength of the belief, in pseudo-observations.
        per_example: Whether ``concentration`` is a multiple of the number of training examples.
        form: ``dirichlet`` or ``multinomial``.
        pool_draws: Use one histogram for all samples.
        ema_decay: Decay of the moving average of the histogram; 0 for none.
        members: Number of networks of an ensemble; for bags of images, of those whose mean prediction labels the images
            in the first of the ``rounds``.
        summary_inputs: Inputs of the summary: ``train``, the training inputs; ``val``, the validation inputs, without
            their labels; or ``use``, unlabelled inputs of the target domain.
        summary_warmup: Steps over which the summary term grows; -1 to train on labels first (`selbo.labels_first`).
        pretraining: Training steps without the summary, before all others.
        unlabelled_inputs: Number of unlabelled inputs to use; all if 0.
        unlabelled_weight: Weight of the term on unlabelled inputs, in entropy minimisation and expectation
            regularisation.
        correction: Correction of predictions in the target domain, by the ratio of class fractions: ``known`` ones, or
            estimated by ``em``, ``em-bcts`` (after bias-corrected temperature scaling) or ``bbse``; see
            `selbo.evaluation.label_shift`. Or one of a frozen classifier: ``belief`` (`selbo.calibrate_to_belief`),
            ``batch`` (equal class fractions), ``source-temperature``, ``rlls`` and ``lascal`` (by held-out labels of
            the source domain); ``temperature``, ``bcts`` and ``isotonic`` (by labels of the target domain).
        rounds: Rounds of self-training: the network is trained again with its own predictions for unlabelled inputs as
            labels. For bags of images these are the most probable labels that have the class counts of the bag.
        threshold: Minimum confidence for a prediction to become a label.
        neighbours: Number of neighbours of label spreading; a Gaussian kernel if 0.
        clamping: Clamping factor of label spreading: how far labels may change.
        inverse_penalty: Inverse penalty C of logistic regression.
        eval_every: Steps between validations; chosen by `selbo.fit` if 0.
        label_shift: Whether summaries and predictions in the target domain are corrected for its class fractions
            (`selbo.LabelShift`).
        fraction_uncertainty: Uncertainty of the class fractions of the belief ``fractions``.
        adaptation: Adaptation of the trained network to unlabelled inputs of the target domain: ``batchnorm`` estimates
            the statistics of BatchNorm on them; ``tent`` also trains its scales and shifts, to minimise the entropy of
            predictions (`selbo_lab.run.adaptation`). For deterministic networks with BatchNorm. All predictions are
            those of the adapted network. There are no labels of the target domain, so settings are chosen as for all
            methods: by the validation NLL in the source domain, with classes weighted to their fractions in the target
            domain.
        adaptation_rate: Learning rate of ``tent``.
        adaptation_epochs: Passes of ``tent`` over the unlabelled inputs.
        posterior: How the posterior of a Bayesian network is trained: ``natural_gradient``
            (`selbo.NaturalGradientPosterior`), or the mean field by backpropagation if empty.
        initial_curvature: Initial curvature of a natural gradient, per example.
        curvature_decay: Decay of the moving average of its curvature.
        rate_warmup: Steps over which the learning rate grows at the beginning.
        momentum: Momentum of ``sgd``, which is Nesterov's if it is not 0.
        posthoc: Posterior of a deterministic network that was trained as usual: ``mc_dropout``, ``swag`` or ``laplace``
            (`selbo.posteriors.MCDropout`, `SWAG`, `LastLayerLaplace`).
        swag_steps: Last steps of the training, a part of ``steps``, at a constant learning rate, for SWAG.
        swag_rate: Learning rate of these steps.
        swag_every: Steps between two sets of weights that SWAG collects; an epoch if 0.
        swag_rank: Largest number of deviations that SWAG keeps.
        prior_precision: Prior precision of Laplace; that of the largest marginal likelihood if 0.
        posterior_scale: Factor on the standard deviations of the weights in predictions.
        scale_belief: Belief by which the scale, or the prior precision of Laplace, is chosen on the validation inputs
            without their labels (`selbo.choose_scale`), for the regions ``confidence`` and with ``concentration``; see
            `selbo_lab.run.build.parse_belief`. Not chosen if empty.
        states_accuracy: Whether the accuracy is stated, by the correction ``belief``, or in methods for groups, whose
            predictions are then scaled to it without labels (`selbo.calibrate_to_belief`).
        states_fractions: Whether the correction ``belief`` states the class fractions of the target domain.
        states_label_fractions: Whether the class fractions of the training labels are stated, which say nothing new.
        accuracy_off: Error of the stated accuracy.
        accuracy_concentration: Concentration of the stated accuracy in the training of methods for groups, in
            pseudo-observations; not part of the training if 0.
        exact_counts: Whether fractions that were counted among the training rows are stated without an error, in
            training and in the choice of settings; if False, as those of a sample as large as the group.
        exact_up_to: Largest group whose counts have their exact likelihood, in training and in the choice of settings;
            that of larger groups is Gaussian.
        calibrated_by_counts: Whether the network learns from all groups but the first part, a tenth of the bags of
            images, whose class counts then calibrate its predictions (`selbo.calibrate_to_belief`).
        fractions_off: Error of the fraction of class 0 that the corrections ``belief`` and ``known``, and methods for
            tables, state; the other classes change in proportion.
        target_labels: Number of labels of the target domain that a correction uses.
        vat_weight: Weight of the consistency of LLP-VAT per example.
        vat_radius: Length of its adversarial perturbations, in standard deviations of the features.
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
    posterior: str = ""
    initial_curvature: float = 0.5
    curvature_decay: float = 0.99999
    rate_warmup: int = 0
    momentum: float = 0.9
    posthoc: str = ""
    swag_steps: int = 0
    swag_rate: float = 0.05
    swag_every: int = 0
    swag_rank: int = 20
    prior_precision: float = 0.0
    posterior_scale: float = 1.0
    scale_belief: str = ""
    states_accuracy: bool = False
    states_fractions: bool = False
    states_label_fractions: bool = False
    accuracy_off: float = 0.0
    accuracy_concentration: float = 0.0
    exact_counts: bool = False
    exact_up_to: int = 8
    calibrated_by_counts: bool = False
    target_labels: int = 0
    vat_weight: float = 0.5
    vat_radius: float = 1.0
    fractions_off: float = 0.0

    def __post_init__(self) -> None:
        one_of("objective", self.objective, OBJECTIVES)
        one_of("correction", self.correction, CORRECTIONS)
        one_of("adaptation", self.adaptation, ADAPTATIONS)
        positive("adaptation_rate", self.adaptation_rate)
        whole("adaptation_epochs", self.adaptation_epochs, at_least=1)
        one_of("summary_inputs", self.summary_inputs, SUMMARY_INPUTS)
        one_of("start", self.start, STARTS)
        one_of("posterior", self.posterior, TRAINED_POSTERIORS)
        if self.posterior and (not self.bayesian or self.kl_weight != 1):
            raise ValueError(
                f"`posterior` {self.posterior!r} needs `bayesian` and a `kl_weight` of 1, as its update contains the KL"
            )
        if self.objective in {"elbo", "summary_elbo", "independent_summary"} and not self.bayesian:
            raise ValueError(f"`bayesian` must be true for the objective {self.objective!r}, but is not")
        if self.adaptation and (self.bayesian or self.posthoc):
            raise ValueError(
                f"`adaptation` is for deterministic networks, but got {self.adaptation!r} for a Bayesian one"
            )
        self._check_posthoc()
        if bool(self.partition) != bool(self.belief):
            raise ValueError(f"`partition` and `belief` belong together, but got {self.partition!r}, {self.belief!r}")
        if self.objective in {"summary_elbo", "independent_summary"} and not self.belief:
            raise ValueError(f"`belief` must be given for the objective {self.objective!r}")

    def _check_posthoc(self) -> None:
        one_of("posthoc", self.posthoc, POSTHOC)
        if self.posthoc and self.bayesian:
            raise ValueError(f"`posthoc` is for deterministic networks, but got {self.posthoc!r} for a Bayesian one")
        if (self.posthoc == "swag") != (self.swag_steps > 0) or not 0 <= self.swag_steps < max(1, self.steps):
            raise ValueError(
                f"`swag_steps` must be from 1 to below `steps` for posthoc = 'swag' and 0 otherwise, but is "
                f"{self.swag_steps}"
            )
        positive("swag_rate", self.swag_rate)
        positive("posterior_scale", self.posterior_scale)
        has_scale = self.bayesian or self.posthoc in {"swag", "laplace"}
        if (self.scale_belief or self.posterior_scale != 1) and not has_scale:
            raise ValueError("`scale_belief` and `posterior_scale` need a posterior with standard deviations")

    @property
    def told(self) -> bool:
        """Whether training uses prior knowledge about the target domain."""
        stated = bool(self.belief or self.scale_belief)
        return stated or self.label_shift or self.objective in {"expectation_regularisation", "summary_network"}

    @property
    def believes(self) -> bool:
        """Whether a belief is given and the objective uses it."""
        return bool(self.belief) and self.objective in {"cross_entropy", "summary_elbo", "independent_summary"}


@dataclass(frozen=True)
class EvaluationSpec:
    """Evaluation settings of a trained network.

    Attributes:
        draws: Weight samples per prediction.
        test: Whether to use test data at all; tuning runs do not.
        suite: Corrupted test sets: ``noise`` on features, ``mnist-c``, ``cifar10-c``, ``cifar10-im-c``, or none.
        levels: Strengths of the noise.
        corruptions: Names of the corruptions; all if empty.
        severities: Severities of the corruptions that have them; all if empty.
        corrupted_draws: Weight samples per prediction on corrupted sets; ``draws`` if 0.
        ood: Names of out-of-distribution data sets.
        ood_if_present: Names of further out-of-distribution data sets, used if they are in the store.
        scores: Whether to store the scores of all test examples, with a map of the test set in two dimensions.
        items: Whether to store the negative log-probability of every test label in the target domain.
        halves: Whether every test set, clean or corrupted, is a target domain of its own: the correction is fitted to
            one half of it, and metrics are those of the other half.
        both_columns: Whether the AUROC of two classes is the mean of both columns, as in the paper's code, instead of
            that of class 1.
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
    halves: bool = False

    def __post_init__(self) -> None:
        one_of("suite", self.suite, SUITES)


@dataclass(frozen=True)
class RunSpec:
    """All settings that affect the numbers of one run."""

    data: DataSpec
    model: ModelSpec
    recipe: Recipe
    evaluation: EvaluationSpec
    seed: int

    def __post_init__(self) -> None:
        if self.evaluation.halves and self.data.labels:
            raise ValueError("`halves` is for data without a target domain, but `labels` are given")

    @property
    def shares_networks(self) -> bool:
        """Whether other runs of a study may differ in the correction only and use the same trained networks."""
        return bool(self.data.labels) or self.evaluation.halves

    @property
    def shares_predictions(self) -> bool:
        """Whether such runs also use the same predictions, because corrections are fitted to parts of large sets."""
        return bool(self.data.prevalences) or self.evaluation.halves

    @cached_property
    def training(self) -> Hashable:
        """Settings of the training: runs that agree in them, for example with different corrections, share networks."""
        data = self.data if self.recipe.told else replace(self.data, fractions_off=0.0)
        recipe = replace(
            self.recipe,
            correction="",
            states_accuracy=False,
            states_fractions=False,
            states_label_fractions=False,
            accuracy_off=self.recipe.accuracy_off if self.recipe.accuracy_concentration else 0.0,
            target_labels=0,
            fractions_off=self.recipe.fractions_off if self.recipe.told else 0.0,
        )
        return data, self.model, recipe, self.seed

    @cached_property
    def id(self) -> str:
        """Hash of the whole configuration."""
        texts = {
            name: _hashed_settings(name, getattr(self, name)) for name in ("data", "model", "recipe", "evaluation")
        }
        texts |= {"format": json.dumps(RUN_FORMAT), "seed": json.dumps(self.seed)}
        text = ", ".join(f'"{name}": {texts[name]}' for name in sorted(texts))
        return hashlib.sha256(f"{{{text}}}".encode()).hexdigest()[:20]


@cache
def _hashed_settings(part: str, values: DataSpec | ModelSpec | Recipe | EvaluationSpec) -> str:
    """Settings that enter the hash of a run, as JSON; many runs share them."""
    later = ADDED_LATER.get(part, ())
    kept = {
        each.name: getattr(values, each.name)
        for each in fields(values)
        if not (each.name in later and getattr(values, each.name) == each.default)
    }
    return json.dumps(kept, sort_keys=True)

"""Methods that learn to classify individuals from class fractions of groups: one log-likelihood each, and training."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selbo import (
    ClassRegions,
    CrossEntropy,
    GroupedSummary,
    Masses,
    Partition,
    SummaryLikelihood,
    fit,
    predict,
)
from selbo.evaluation import correct_prior
from selbo.models import MLP
from selbo.objectives import Objective, Term, log_prob_of_labels
from selbo.posteriors import Posterior, as_posterior
from selbo.random import derive, generator_for
from selbo.training import Diverged, Optimizer
from selbo_lab.run import build
from selbo_lab.run.frozen import calibrate_as_stated
from selbo_lab.run.group_cases import GroupCase, with_rows_to_learn_from
from selbo_lab.studies.run_spec import ModelSpec, Recipe, RunSpec

LEAST_GROUP_SHARE: Final = 1e-3
"""Minimum probability of a class where a group's fraction is the prediction."""

ADDED_PER_CLASS: Final = 0.5
"""Pseudo-observations per class, where the Dirichlet form or a correction needs positive fractions."""

VAT_STEP: Final = 1e-2
"""Length of the step along which the direction of an adversarial perturbation is found."""

LBFGS_HISTORY: Final = 20
"""Number of past steps of L-BFGS."""

LEARN_GROUPS: Final = ("group_belief", "proportion_loss", "easy_llp", "mean_map", "llp_vat")


# --- log-likelihoods ---


class SoftTargets(nn.Module):
    """Mean log-likelihood of soft labels that depend on the group: values per input, (S, B).

    EasyLLP (Busa-Fekete et al., 2023) gives every member of a group of n the targets n f - (n - 1) p, where f are the
    fractions of the group and p those of all. They may be negative, and are right in expectation for random bags.

    Args:
        targets: Targets of each group, (G, K).
    """

    takes_groups = True
    targets: Tensor

    def __init__(self, targets: Tensor) -> None:
        super().__init__()
        self.register_buffer("targets", targets.float())

    def forward(self, log_probs: Tensor, groups: Tensor, _: Tensor | None = None) -> Tensor:
        """Weighted log-probabilities; zero for rows without a group: (S, B, K), (B,) -> (S, B)."""
        chosen = self.targets[groups.clamp(min=0)] * (groups >= 0).unsqueeze(1)
        return (chosen * log_probs).sum(-1)


class ExpectedAnswers(Partition):
    """Right and wrong answers, as expected by the predictions themselves: the largest probability, and the rest."""

    num_regions = 2

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes

    def memberships(self, log_probs: Tensor) -> Tensor:
        """Probabilities of a right and of a wrong answer: (..., B, K) -> (..., B, 2)."""
        right = log_probs.exp().amax(-1)
        return torch.stack([right, 1 - right], -1)

    def assign(self, log_probs: Tensor) -> Tensor:
        """The more probable of the two: (..., B, K) -> (..., B)."""
        return (log_probs.exp().amax(-1) < 0.5).long()


def _stated_accuracy(spec: RunSpec) -> float:
    """The accuracy that a belief states, with its error."""
    return min(spec.data.group_accuracy + spec.recipe.accuracy_off, build.MOST_STATED)


def group_term(recipe: Recipe, case: GroupCase) -> Term:
    """The log-likelihood of a method as a term of an objective."""
    if recipe.objective == "easy_llp":
        sizes = case.sizes.double().unsqueeze(1)
        targets = sizes * case.fractions - (sizes - 1) * case.overall
        return Term(SoftTargets(targets), warmup=0, name="easy_llp", per_example=True)
    strength, form, smoothing = case.concentration, recipe.form, 0.0
    if recipe.objective != "group_belief":  # the proportion loss weighs all groups alike
        strength, form = torch.full_like(strength, len(case.groups) / len(strength)), "multinomial"
    elif form == "dirichlet":
        smoothing = ADDED_PER_CLASS
    summary = GroupedSummary(
        ClassRegions(case.fractions.shape[1]),
        case.fractions,
        strength,
        form=form,
        smoothing=smoothing,
        exact_up_to=recipe.exact_up_to,
    )
    return Term(summary, warmup=0)


def class_means(inputs: Tensor, case: GroupCase) -> Tensor:
    """Mean inputs of each class, by least squares from those of the groups: (N, D) -> (K, D), in float64.

    MeanMap (Quadrianto et al., 2009): inputs of a class have the same distribution in all groups.
    """
    there = case.groups >= 0
    sizes = case.sizes.double()
    sums = torch.zeros(len(sizes), inputs.shape[1], dtype=torch.float64)
    sums.index_add_(0, case.groups[there], inputs[there].double())
    present = sizes > 0
    root = sizes[present].sqrt().unsqueeze(1)
    means = sums[present] / sizes[present].unsqueeze(1)
    found: Tensor = torch.linalg.lstsq(root * case.fractions[present], root * means).solution
    return found


def perturbation_loss(network: nn.Module, inputs: Tensor, log_probs: Tensor, noise: Tensor, radius: float) -> Tensor:
    """Divergence of predictions for inputs after an adversarial perturbation, summed over inputs.

    Virtual adversarial training (Miyato et al., 2018), which LLP-VAT (Tsai and Lin, 2020) adds to the proportion loss.

    Args:
        network: The network.
        inputs: (N, D).
        log_probs: Predictions for them, (N, K).
        noise: Directions to start from, (N, D), of length 1.
        radius: Length of the perturbations.
    """
    target = log_probs.detach()
    step = (VAT_STEP * noise).requires_grad_()
    (slope,) = torch.autograd.grad(_divergence(target, network(inputs + step)), step)
    direction = F.normalize(slope, dim=1)
    return _divergence(target, network(inputs + radius * direction))


def _divergence(target: Tensor, outputs: Tensor) -> Tensor:
    return F.kl_div(outputs.log_softmax(-1), target, log_target=True, reduction="sum")


# --- training ---


def train_group_method(spec: RunSpec, case: GroupCase, *, device: str = "cpu") -> nn.Module | Posterior:
    """Train a network or its posterior: tables on all rows at once by L-BFGS, images in batches of groups."""
    if spec.model.name == "mlp":
        return _train_at_once(spec, case)
    return _train_in_batches(spec, case, device)


def _train_at_once(spec: RunSpec, case: GroupCase) -> nn.Module:
    """Maximise log-likelihood - weight_decay / 2 * sum of squared weights.

    Biases are free, except with EasyLLP: if groups differ in size, the mean of its targets may be negative, and the
    best bias infinite.
    """
    if spec.recipe.rounds:
        raise ValueError(f"`rounds` is for images, but the network is {spec.model.name!r}")
    if spec.recipe.objective in LEARN_GROUPS:
        case = with_rows_to_learn_from(case)
    recipe, inputs = spec.recipe, case.train.network_inputs()
    linear = ModelSpec("mlp") if recipe.objective == "mean_map" else spec.model
    network = _network(linear, inputs.shape[1], case, spec.seed)
    log_likelihood = _log_likelihood(spec, case, network, inputs)
    weights = [each for each in network.parameters() if each.ndim > 1 or recipe.objective == "easy_llp"]
    optimizer = torch.optim.LBFGS(
        network.parameters(), max_iter=recipe.steps, history_size=LBFGS_HISTORY, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        penalty = recipe.weight_decay / 2 * sum(each.square().sum() for each in weights)
        loss: Tensor = (penalty - log_likelihood()) / len(inputs)
        loss.backward()
        return loss

    optimizer.step(closure)
    if not all(bool(each.isfinite().all()) for each in network.parameters()):
        raise Diverged("the weights are not numbers")
    return network.requires_grad_(False)


def _network(model: ModelSpec, features: int, case: GroupCase, seed: int) -> nn.Module:
    sizes = (features, *model.hidden, case.train.num_classes)
    network = MLP(sizes, generator=generator_for(seed, "weights"))
    if not model.hidden:  # convex for labels: the start does not matter
        for each in network.parameters():
            nn.init.zeros_(each)
    return network


def _log_likelihood(spec: RunSpec, case: GroupCase, network: nn.Module, inputs: Tensor) -> Callable[[], Tensor]:
    """What is maximised, in nats, over all training rows."""
    recipe, labels = spec.recipe, case.train.labels
    rows = torch.arange(len(labels)) if recipe.objective == "all_labels" else case.labelled
    of_labels = partial(_of_labels, network, inputs[rows], labels[rows])
    if recipe.objective not in LEARN_GROUPS:
        return of_labels
    extra: Callable[[], Tensor] = of_labels if len(rows) else partial(torch.zeros, ())
    if recipe.objective == "mean_map":
        means, there = class_means(inputs, case).float(), case.groups >= 0
        share = case.overall.float()

        def of_means() -> Tensor:
            at_means: Tensor = (share * network(means).diagonal()).sum()
            of_rows: Tensor = network(inputs[there]).logsumexp(-1).sum()
            return int(there.sum()) * at_means - of_rows + extra()

        return of_means
    term = group_term(recipe, case)
    noise = F.normalize(torch.randn(inputs.shape, generator=generator_for(spec.seed, "vat")), dim=1)
    sure = None
    if recipe.accuracy_concentration:
        stated = _stated_accuracy(spec)
        belief, count = Masses([stated, 1 - stated]), recipe.accuracy_concentration
        sure = SummaryLikelihood(ExpectedAnswers(case.train.num_classes), belief, count, form="multinomial")

    def of_groups() -> Tensor:
        log_probs = network(inputs).log_softmax(-1)
        value = term.summary(log_probs.unsqueeze(0), case.groups, None)
        found = value.mean() * len(inputs) if term.per_example else value.sum()
        if recipe.objective == "llp_vat":
            found = found - recipe.vat_weight * perturbation_loss(network, inputs, log_probs, noise, recipe.vat_radius)
        if sure is not None:
            found = found + sure(log_probs)
        return found + extra()

    return of_groups


def _of_labels(network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return log_prob_of_labels(network(inputs).log_softmax(-1).unsqueeze(0), labels).sum()


def _train_in_batches(spec: RunSpec, case: GroupCase, device: str) -> Posterior:
    """Train the posterior of a network for images with `selbo.fit`, whose batches are made of groups."""
    recipe = spec.recipe
    if recipe.objective in {"mean_map", "llp_vat"}:
        raise ValueError(f"the objective {recipe.objective!r} is for tables, but the network is {spec.model.name!r}")
    if recipe.accuracy_concentration:
        raise ValueError(f"`accuracy_concentration` is for tables, but the network is {spec.model.name!r}")
    known = torch.full_like(case.train.labels, -1)
    known[case.labelled] = case.train.labels[case.labelled]
    if recipe.objective == "all_labels":
        known = case.train.labels
    if recipe.members > 1 and not recipe.rounds:
        raise ValueError("several `members` label images for another network, but `rounds` is 0")
    seeds = [spec.seed, *(derive(spec.seed, "member", i) % (1 << 31) for i in range(1, recipe.members))]
    learn_groups = recipe.objective in LEARN_GROUPS
    fitted = [_fit_network(spec, case, known, device, seed, learn_groups=learn_groups) for seed in seeds]
    for _ in range(recipe.rounds):
        inputs, draws = case.train.network_inputs(), spec.evaluation.draws
        log_probs = torch.stack([_log_probs(each, inputs, draws=draws) for each in fitted]).logsumexp(0)
        labels = torch.where(known < 0, most_probable_labels(log_probs, case), known)
        fitted = [_fit_network(spec, case, labels, device, spec.seed, learn_groups=False)]
    return fitted[0]


def _fit_network(
    spec: RunSpec, case: GroupCase, labels: Tensor, device: str, seed: int, *, learn_groups: bool
) -> Posterior:
    """Train a new network on labels, -1 for none, and on groups if so."""
    recipe, inputs = spec.recipe, case.train.to(device).network_inputs()
    network = build.build_network(
        spec.model, recipe, input_size=inputs[0].numel(), num_classes=case.train.num_classes, seed=seed
    )
    posterior = build.build_posterior(network.to(device), recipe, num_data=len(inputs))
    objective: Objective = CrossEntropy(len(inputs))
    settings: dict[str, Any] = {}
    if learn_groups:
        objective = Objective(len(inputs), terms=[group_term(recipe, case)])
        settings = {"groups": case.groups.to(device), "rows_per_group": spec.data.group_size}
    if not recipe.posterior:  # a natural gradient is an optimiser itself
        settings["optimizer"] = Optimizer(recipe.optimizer, recipe.momentum, recipe.weight_decay)
    fit(
        posterior,
        objective,
        (inputs, labels.to(device)) if bool((labels >= 0).any()) else inputs,
        steps=recipe.steps,
        batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        schedule=recipe.schedule,
        warmup_steps=recipe.rate_warmup,
        augment=recipe.augment or None,
        precision=recipe.precision,
        engine=build.choose_engine(spec.model, device),
        seed=derive(seed, "groups") % (1 << 31),
        device=device,
        callbacks=(),
        **settings,
    )
    return posterior


def most_probable_labels(log_probs: Tensor, case: GroupCase) -> Tensor:
    """The most probable labels of training rows that have the stated class counts of their group: (N, K) -> (N,).

    An assignment problem per group. Stated fractions are rounded to counts, largest remainders up. Rows without a group
    have -1.
    """
    from scipy.optimize import linear_sum_assignment

    labels = torch.full((len(log_probs),), -1)
    for group in case.groups[case.groups >= 0].unique().tolist():
        rows = (case.groups == group).nonzero().squeeze(1)
        expected = len(rows) * case.fractions[group]
        counts = expected.floor().long()
        counts[(expected - counts).topk(len(rows) - int(counts.sum())).indices] += 1
        of_places = torch.arange(len(counts)).repeat_interleave(counts)
        places = linear_sum_assignment(log_probs[rows][:, of_places].numpy(), maximize=True)[1]
        labels[rows] = of_places[torch.from_numpy(places)]
    return labels


# --- predictions ---


def group_predictions(
    spec: RunSpec, case: GroupCase, network: nn.Module | Posterior | None, inputs: Tensor, groups: Tensor
) -> Tensor:
    """Log-probabilities of a method for rows with known groups: (B, ...), (B,) -> (B, K), float64 on the CPU.

    Args:
        spec: Settings of the run.
        case: The data that the network was trained on.
        network: The trained network, or its posterior; None for the fraction of the group.
        inputs: Inputs.
        groups: Group of each, -1 for none.
    """
    recipe = spec.recipe
    of_group = torch.cat([case.fractions, case.overall.unsqueeze(0)])[groups].clamp(
        LEAST_GROUP_SHARE, 1 - LEAST_GROUP_SHARE
    )
    if network is None:
        return (of_group / of_group.sum(1, keepdim=True)).log()
    log_probs = partial(_log_probs, network, draws=spec.evaluation.draws)
    found = log_probs(inputs)
    if recipe.correction:
        known = torch.bincount(case.train.labels[case.labelled], minlength=case.train.num_classes) + ADDED_PER_CLASS
        before = (known / known.sum()).tolist()
        corrected = torch.empty_like(found)
        for group in groups.unique().tolist():
            rows = groups == group
            after = of_group[rows][0]
            corrected[rows] = correct_prior(found[rows], before, (after / after.sum()).tolist())
        return corrected
    if recipe.states_accuracy:
        try:
            scale = calibrate_as_stated(log_probs(case.train.network_inputs()), accuracy=_stated_accuracy(spec))
        except ValueError:  # the network has hardly learned anything
            return found
        return scale(found)
    return found


def _log_probs(network: nn.Module | Posterior, inputs: Tensor, *, draws: int) -> Tensor:
    inputs = inputs.to(next(as_posterior(network).network.parameters()).device)
    generator = generator_for(0, "prediction", device=inputs.device)
    found = predict(network, inputs, draws, generator=generator).log_probs.double().cpu()
    if bool(found.isnan().any()):
        raise Diverged("the predictions are not numbers")
    return found

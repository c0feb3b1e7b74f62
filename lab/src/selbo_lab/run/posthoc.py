"""Posteriors of deterministic networks that were trained as usual, and the scale of any posterior."""

from typing import Final

import torch
from torch import Tensor, nn

from selbo import SummaryLikelihood, choose_scale
from selbo.posteriors import SWAG, LastLayerLaplace, MCDropout, Posterior
from selbo_lab.run import build
from selbo_lab.studies.run_spec import DataSpec, Recipe

BATCHNORM_INPUTS: Final = 10_000
"""Largest number of training inputs, without augmentation, from which the BatchNorm statistics of a SWAG sample are
estimated."""

CHOOSING_SAMPLES: Final = 32
"""Weight samples per prediction where a scale is chosen."""


def prepare_posthoc(network: nn.Module, recipe: Recipe, inputs: Tensor) -> Posterior | None:
    """The posterior that a recipe has after training, if any; raises errors before the training.

    Args:
        network: The network that will be trained.
        recipe: Its settings.
        inputs: Training inputs, (N, ...).
    """
    if recipe.posthoc == "mc_dropout":
        return MCDropout(network)
    if recipe.posthoc == "swag":
        return SWAG(network, max_rank=recipe.swag_rank, batchnorm_inputs=inputs[:BATCHNORM_INPUTS])
    if recipe.posthoc == "laplace":
        return LastLayerLaplace(network)
    return None


def complete_posthoc(posterior: Posterior, recipe: Recipe, inputs: Tensor) -> None:
    """Finish a posterior after training: curvature and prior precision of Laplace."""
    if isinstance(posterior, LastLayerLaplace):
        posterior.observe(inputs)
        if recipe.prior_precision:
            posterior.prior_precision = recipe.prior_precision
        else:
            posterior.maximise_evidence()


def set_scale(
    posterior: Posterior, recipe: Recipe, inputs: Tensor, *, num_data: int, num_classes: int, data: DataSpec | str
) -> None:
    """Set the scale of a posterior: the number of the recipe, or the choice by its belief.

    Args:
        posterior: A trained posterior with a scale.
        recipe: Its settings.
        inputs: Inputs without labels that the belief is about.
        num_data: Number of training examples.
        num_classes: Number of classes.
        data: The data, for the prior knowledge about them.
    """
    if recipe.posterior_scale != 1:
        posterior.scale = recipe.posterior_scale
    if not recipe.scale_belief:
        return
    summary = SummaryLikelihood(
        build.parse_partition("confidence", num_classes),
        build.parse_belief(recipe.scale_belief, num_classes, data=data),
        recipe.concentration * (num_data if recipe.per_example else 1),
        overrule_labels=True,  # the study decides
    ).to(inputs.device)
    setting = "prior_precision" if isinstance(posterior, LastLayerLaplace) else "scale"
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
        choose_scale(posterior, inputs, summary, setting=setting, num_samples=CHOOSING_SAMPLES)

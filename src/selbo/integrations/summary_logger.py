"""A callback of `fit` that logs its records and the histogram of the predictions."""

from typing import Any

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo.integrations.loggers import Draw, Logger, log_snapshot
from selbo.integrations.monitor import Snapshot
from selbo.objectives import Objective
from selbo.objectives.predictive import to_log_probs
from selbo.posteriors import as_posterior
from selbo.posteriors.posterior import evaluation_mode
from selbo.random import generator_for
from selbo.summary.likelihood import SummaryLikelihood, normalise_counts, soft_counts


def take_snapshot(
    model: nn.Module,
    summary: SummaryLikelihood,
    inputs: Tensor,
    *,
    num_samples: int = 8,
    objective: Objective | None = None,
    generator: torch.Generator | None = None,
    batch_size: int = 1024,
) -> Snapshot:
    """Histogram of the predictions of a network against the belief.

    Computed in evaluation mode and without gradients. For a Bayesian network it is the mean over samples of the
    histogram of one sample, as in the summary.

    Args:
        model: A network from `to_bayesian`, or a deterministic one.
        summary: The summary with the belief.
        inputs: Inputs, shape (B, ...); moved to the device of the network.
        num_samples: Number of weight samples.
        objective: The training objective, if the outputs are not logits of a softmax.
        generator: Random generator on the device of the network; torch's default if not given.
        batch_size: Number of inputs per batch.

    Example:
        >>> from selbo.summary.beliefs import Uniform
        >>> from selbo.summary.partitions import ClassRegions
        >>> summary = SummaryLikelihood(ClassRegions(3), Uniform())
        >>> generator = torch.Generator().manual_seed(0)
        >>> snapshot = take_snapshot(
        ...     nn.Flatten(), summary, torch.zeros(4, 3), generator=generator
        ... )
        >>> f"{snapshot.distance:.3f}"
        '0.000'
    """
    where = next((each.device for each in model.parameters()), inputs.device)
    blocks = (block.to(where) for block in inputs.split(_checks.whole("batch_size", batch_size, at_least=1)))
    partition = summary.partition
    with torch.no_grad(), evaluation_mode(model):
        by_block = as_posterior(model).logits_by_block(blocks, num_samples, generator=generator)
        counts = sum(soft_counts(partition(to_log_probs(logits, objective))) for logits in by_block)
    if not isinstance(counts, Tensor):
        raise ValueError(f"`inputs` must be a batch of at least one, but got shape {tuple(inputs.shape)}")
    return Snapshot(normalise_counts(counts).mean(0).double().cpu(), summary.s0.detach().double().cpu())


class SummaryLogger:
    """A callback of `fit` that logs the terms of each record as curves and, if ``model`` is given, the histogram.

    Args:
        *loggers: For instance `selbo.integrations.mlflow.MLflowLogger` or
            `selbo.integrations.tensorboard.TensorBoardLogger`.
        model: The trained network; without it only curves are logged.
        summary: The summary with the belief about its predictions.
        inputs: Inputs of the histogram, for instance those of the validation set; shape (B, ...).
        objective: See `take_snapshot`.
        num_samples: Weight samples for the histogram.
        draw: Plots a figure of a snapshot, for instance with `selbo.plots.summary_against_histogram`.
        every: Records between histograms.
        seed: Seed for the weight samples.
    """

    def __init__(
        self,
        *loggers: Logger,
        model: nn.Module | None = None,
        summary: SummaryLikelihood | None = None,
        inputs: Tensor | None = None,
        objective: Objective | None = None,
        num_samples: int = 8,
        draw: Draw | None = None,
        every: int = 1,
        seed: int = 0,
    ) -> None:
        given = [each is not None for each in (model, summary, inputs)]
        if any(given) and not all(given):
            raise ValueError("`model`, `summary` and `inputs` must be given together, or none of them")
        if draw is not None and model is None:
            raise ValueError("`draw` needs predictions to draw: pass `model`, `summary` and `inputs` too")
        self.loggers = loggers
        self.model, self.summary, self.inputs, self.objective = model, summary, inputs, objective
        self.num_samples = _checks.whole("num_samples", num_samples, at_least=1)
        self.every = _checks.whole("every", every, at_least=1)
        self.seed = _checks.whole("seed", seed, at_least=0)
        self.draw = draw
        self.calls = 0

    def __call__(self, record: dict[str, Any]) -> None:
        """Log a record of `fit`."""
        step = record["step"]
        scalars = {name: value for name, value in record.items() if isinstance(value, float)}
        snapshot = self._look(step) if self.calls % self.every == 0 else None
        self.calls += 1
        for logger in self.loggers:
            logger.scalars({**scalars, **({} if snapshot is None else snapshot.scalars())}, step)
        if snapshot is not None:
            log_snapshot(self.loggers, "summary", snapshot, step, draw=self.draw)

    def _look(self, step: int) -> Snapshot | None:
        if self.model is None or self.summary is None or self.inputs is None:
            return None
        where = next((each.device for each in self.model.parameters()), self.inputs.device)
        return take_snapshot(
            self.model,
            self.summary,
            self.inputs,
            num_samples=self.num_samples,
            objective=self.objective,
            generator=generator_for(self.seed, "histogram", step, device=where),
        )

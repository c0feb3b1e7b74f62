"""Predictions with uncertainty: the mean over weight samples, and the disagreement between samples."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from selbo import _checks
from selbo.evaluation.calibrate import scale
from selbo.metrics.uncertainty import entropy
from selbo.objectives import Categorical, Objective
from selbo.objectives.predictive import mean_over_samples, to_log_probs
from selbo.posteriors import Posterior, as_posterior
from selbo.posteriors.posterior import evaluation_mode


@dataclass(frozen=True)
class Prediction:
    """Predictions of a network for a batch of inputs.

    Attributes:
        probs: Probabilities of the classes, shape (B, K).
        log_probs: Log-probabilities, shape (B, K), exact where a probability underflows.
        entropy: Entropy of each prediction, in nats, shape (B,).
        expected_entropy: Mean entropy over samples, shape (B,): the aleatoric uncertainty, that is, noise of the data.
        mutual_information: ``entropy`` minus ``expected_entropy``, shape (B,), at least 0: the epistemic uncertainty,
            about the weights (for an evidential network, about the evidence). It is large for inputs unlike the
            training data, and zero for one sample.
    """

    probs: Tensor
    log_probs: Tensor
    entropy: Tensor
    expected_entropy: Tensor
    mutual_information: Tensor

    @property
    def classes(self) -> Tensor:
        """The most probable class of each input, shape (B,)."""
        return self.probs.argmax(-1)

    def with_log_probs(self, log_probs: Tensor) -> "Prediction":
        """Replace the probabilities, for example by corrected ones.

        The entropy is that of the new probabilities. The mutual information is kept, because a correction does not
        change the weight samples. The expected entropy is the difference of the two.
        """
        total, doubt = entropy(log_probs=log_probs), self.mutual_information
        return Prediction(log_probs.exp(), log_probs, total, (total - doubt).clamp(min=0), doubt)

    def __len__(self) -> int:
        return len(self.probs)


def predict(
    model: nn.Module | Posterior,
    inputs: "Tensor | Dataset[Any] | DataLoader[Any]",
    num_samples: int = 128,
    *,
    objective: Objective | None = None,
    generator: torch.Generator | None = None,
    batch_size: int = 1024,
    chunk_size: int | None = None,
    precision: str = "fp32",
    engine: str = "eager",
) -> Prediction:
    """Posterior predictive probabilities, Eq. (2), and their uncertainty.

    All inputs are predicted with the same weight samples. The network runs in evaluation mode and without gradients;
    its mode is restored afterwards.

    Args:
        model: A network made by `to_bayesian`, or a deterministic one, which needs one pass; or its posterior.
        inputs: Shape (B, ...); or a Dataset or DataLoader of inputs, or of tuples whose first entry is the inputs.
        num_samples: Number of weight samples.
        objective: Training objective; required if outputs are not logits of a softmax (`Evidential`).
        generator: Source of the noise, on the device of the network; torch's default generator if not given.
        batch_size: Number of inputs per pass.
        chunk_size: Number of samples per pass; chosen to bound memory if not given. ``"compiled"`` uses 1.
        precision: ``"fp32"``, or ``"bf16"`` for the forward pass.
        engine: ``"eager"``; or ``"compiled"``, for large networks with many predictions on a GPU. Compilation takes
            about ten seconds, once per process and architecture. The samples are the same, and the results agree up to
            rounding. Blocks shorter than ``batch_size`` (for a loader, than its first block) are padded to one shape,
            so choose a batch size that divides the number of inputs. A network that cannot be compiled runs eagerly,
            after a warning.

    Returns:
        Probabilities, entropy, expected entropy and mutual information, on the device of the network.

    Example:
        >>> from selbo.nn import to_bayesian
        >>> with torch.random.fork_rng():
        ...     bnn = to_bayesian(nn.Linear(4, 3))
        >>> prediction = predict(
        ...     bnn, torch.ones(5, 4), 16, generator=torch.Generator().manual_seed(0)
        ... )
        >>> prediction.probs.shape, bool((prediction.mutual_information >= 0).all())
        (torch.Size([5, 3]), True)
    """
    _checks.one_of("precision", precision, ("bf16", "fp32"))
    _checks.whole("batch_size", batch_size, at_least=1)
    posterior = as_posterior(model)
    device = posterior.device
    # compiled code casts weights itself and must not use the cache of an eager pass
    reduced = (
        torch.autocast(device.type, torch.bfloat16, cache_enabled=engine == "eager")
        if precision == "bf16"
        else nullcontext()
    )
    parts = []
    with torch.no_grad(), evaluation_mode(posterior.network), reduced:
        by_block = posterior.logits_by_block(
            _blocks(inputs, batch_size, device),
            num_samples,
            generator=generator,
            chunk_size=chunk_size,
            engine=engine,
            rows=None if isinstance(inputs, DataLoader) else batch_size,
        )
        parts = [_describe(logits.float() if precision == "bf16" else logits, objective) for logits in by_block]
    if not parts:
        raise ValueError("`inputs` must hold at least one input, but there are none")
    return Prediction(*(torch.cat([getattr(part, each.name) for part in parts]) for each in fields(Prediction)))


def at_temperature(prediction: Prediction, temperature: float) -> Prediction:
    """The same predictions at another temperature; see `Prediction.with_log_probs`."""
    return prediction.with_log_probs(scale(prediction.log_probs, temperature).to(prediction.log_probs))


def mixture(predictions: Sequence[Prediction]) -> Prediction:
    """Average the predictions of several networks with equal weights: the prediction of an ensemble.

    Disagreement between networks adds to the mutual information of each network.

    Args:
        predictions: Predictions for the same inputs, one per network; at least one.
    """
    if not predictions:
        raise ValueError("`predictions` must hold at least one prediction, but there are none")
    log_probs = mean_over_samples(torch.stack([each.log_probs for each in predictions]))
    total = entropy(log_probs=log_probs, validate=False)
    within = torch.stack([each.expected_entropy for each in predictions]).mean(0)
    within = torch.minimum(within, total)  # rounding
    return Prediction(log_probs.exp(), log_probs, total, within, total - within)


def _describe(logits: Tensor, objective: Objective | None) -> Prediction:
    likelihood = Categorical() if objective is None else objective.likelihood
    log_probs = mean_over_samples(to_log_probs(logits, objective))
    total = entropy(log_probs=log_probs, validate=False)
    within = torch.minimum(likelihood.expected_entropy(logits), total)  # rounding
    return Prediction(log_probs.exp(), log_probs, total, within, total - within)


def _blocks(inputs: Any, batch_size: int, device: torch.device) -> Iterator[Tensor]:
    if isinstance(inputs, Tensor):
        if inputs.ndim < 1 or len(inputs) == 0:
            raise ValueError(f"`inputs` must be a batch of at least one, but got shape {tuple(inputs.shape)}")
        blocks: Iterable[Any] = inputs.split(batch_size)
    elif isinstance(inputs, DataLoader):
        blocks = inputs
    elif isinstance(inputs, Dataset):
        # a separate generator, because a loader always draws a seed for its workers
        blocks = DataLoader(inputs, batch_size=batch_size, generator=torch.Generator())
    else:
        raise ValueError(f"`inputs` must be a tensor, a Dataset or a DataLoader, but got {type(inputs).__name__}")
    for block in blocks:
        tensor = block[0] if isinstance(block, (tuple, list)) else block
        yield tensor.to(device, non_blocking=True)

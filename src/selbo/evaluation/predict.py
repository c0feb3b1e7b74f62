"""Predictions with their uncertainty: the mean over weight draws, and how far the draws disagree."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from selbo import _checks
from selbo.evaluation.calibrate import scale
from selbo.metrics.uncertainty import dirichlet_expected_entropy, entropy, expected_entropy
from selbo.objectives import DirichletEvidence, Objective
from selbo.objectives.predictive import evaluation_mode, log_probs_of, mean_over_draws
from selbo.posteriors import Posterior, as_posterior


@dataclass(frozen=True)
class Prediction:
    """What a network says of some inputs.

    Attributes:
        probs: Probabilities of the classes, shape (B, K).
        log_probs: Their logarithms, exact where a probability underflows.
        entropy: Of each prediction, in nats, shape (B,).
        expected_entropy: Mean entropy of the draws, shape (B,): noise of the data, as the network sees it.
        mutual_information: The rest, shape (B,), at least 0: doubt about the weights (or, of an evidential network,
            about the evidence); it is large for inputs unlike the training data. Zero for one draw.
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
        """The same inputs with other probabilities, such as corrected ones.

        Entropy follows them. The mutual information stays that of the weight draws, which a correction does not change;
        expected entropy is the rest.
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

    All inputs are seen under the same weight draws. The network is used in evaluation mode and without gradients, and
    left in the mode it was in.

    Args:
        model: A network made by `to_bayesian`, or a plain one, for which one pass is enough; or its posterior.
        inputs: Shape (B, ...); or a Dataset or DataLoader of inputs, or of pairs whose first is the inputs.
        num_samples: Number of weight draws.
        objective: What the network was trained with; needed where outputs are not logits of a softmax (`Evidential`).
        generator: Where the noise comes from, on the device of the network; torch's own state if not given.
        batch_size: Number of inputs at a time.
        chunk_size: Draws at a time; chosen to bound memory if not given. ``"compiled"`` has one at a time.
        precision: ``"fp32"``, or ``"bf16"`` for the forward pass.
        engine: ``"eager"``; or ``"compiled"``, for large networks that predict much on a GPU: compiling takes some ten
            seconds, once in a process for all networks of an architecture. The draws are the same, and the numbers up
            to rounding. Blocks shorter than ``batch_size`` (from a loader, than its first) are filled up to it, to have
            one shape: choose one that divides the number of inputs. A network that cannot be compiled predicts eagerly,
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
    # compiled code casts weights itself; what it would find in the cache of an eager pass is not for it
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
    """What several networks say together, each with the same weight: the prediction of an ensemble.

    Their disagreement counts as doubt about the weights, beside that of each one's own draws.

    Args:
        predictions: Of the same inputs, one for each network; at least one.
    """
    if not predictions:
        raise ValueError("`predictions` must hold at least one prediction, but there are none")
    log_probs = mean_over_draws(torch.stack([each.log_probs for each in predictions]))
    total = entropy(log_probs=log_probs, validate=False)
    within = torch.stack([each.expected_entropy for each in predictions]).mean(0)
    within = torch.minimum(within, total)  # rounding
    return Prediction(log_probs.exp(), log_probs, total, within, total - within)


def _describe(logits: Tensor, objective: Objective | None) -> Prediction:
    by_draw = log_probs_of(logits, objective)
    log_probs = mean_over_draws(by_draw)
    total = entropy(log_probs=log_probs, validate=False)
    if objective is not None and isinstance(objective.likelihood, DirichletEvidence):
        within = dirichlet_expected_entropy(objective.likelihood.alpha(logits)).mean(0)
    else:
        within = expected_entropy(log_probs=by_draw, validate=False)
    within = torch.minimum(within, total)  # rounding
    return Prediction(log_probs.exp(), log_probs, total, within, total - within)


def _blocks(inputs: Any, batch_size: int, device: torch.device) -> Iterator[Tensor]:
    if isinstance(inputs, Tensor):
        if inputs.ndim < 1 or len(inputs) == 0:
            raise ValueError(f"`inputs` must be a batch of at least one, but got shape {tuple(inputs.shape)}")
        blocks: Iterable[Any] = inputs.split(batch_size)
    elif isinstance(inputs, DataLoader):
        blocks = inputs
    elif isinstance(inputs, Dataset):
        # a generator of its own: a loader takes a seed for its workers, needed or not
        blocks = DataLoader(inputs, batch_size=batch_size, generator=torch.Generator())
    else:
        raise ValueError(f"`inputs` must be a tensor, a Dataset or a DataLoader, but got {type(inputs).__name__}")
    for block in blocks:
        tensor = block[0] if isinstance(block, (tuple, list)) else block
        yield tensor.to(device, non_blocking=True)

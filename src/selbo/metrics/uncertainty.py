r"""Uncertainty of predictions: entropy, and its decomposition into aleatoric and epistemic uncertainty.

With predictions $p_1, \ldots, p_S$, one per weight sample, and their mean $\bar p$,

$$\underbrace{H(\bar p)}_{\text{entropy}} = \underbrace{\tfrac1S \sum_s H(p_s)}_{\text{expected entropy}}
+ \underbrace{\tfrac1S \sum_s \mathrm{KL}(p_s \,\|\, \bar p)}_{\text{mutual information}} .$$

The expected entropy is the uncertainty that remains if the weights are known (aleatoric); the mutual information is the
uncertainty about the weights, which more data can reduce (epistemic). All values are in nats, differentiable, on the
device of the input, and computed in double precision if the device supports it.
"""

import torch
from torch import Tensor

from selbo import _checks
from selbo._numerics import LOG_PROB_FLOOR, result_dtype, widen, working_dtype


def entropy(probs: Tensor | None = None, *, log_probs: Tensor | None = None, validate: bool = True) -> Tensor:
    r"""Entropy of class probabilities, $-\sum_k p_k \log p_k$ with $0 \log 0 = 0$, in nats.

    Args:
        probs: Probabilities, shape (..., K), on the simplex.
        log_probs: Log-probabilities, instead of ``probs``; not logits.
        validate: Also validate values; synchronises with the device.

    Returns:
        Entropy, shape (...), between 0 and log K, float32 or wider.

    Example:
        >>> entropy(torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))
        tensor([0.6931, 0.0000])
    """
    given, is_log = _one_of(probs, log_probs, validate, samples=False)
    return _entropy(given, is_log).to(_result_dtype(probs, log_probs))


def expected_entropy(probs: Tensor | None = None, *, log_probs: Tensor | None = None, validate: bool = True) -> Tensor:
    """Mean entropy over weight samples: the aleatoric uncertainty, that is, noise of the data.

    Args:
        probs: Probabilities, shape (..., S, B, K), on the simplex.
        log_probs: Log-probabilities, instead of ``probs``; not logits.
        validate: Also validate values; synchronises with the device.

    Returns:
        Expected entropy in nats, shape (..., B), between 0 and the entropy of the mean.

    Example:
        >>> # two samples of one prediction
        >>> expected_entropy(torch.tensor([[[0.5, 0.5]], [[1.0, 0.0]]]))
        tensor([0.3466])
    """
    given, is_log = _one_of(probs, log_probs, validate, samples=True)
    return _entropy(given, is_log).mean(-2).to(_result_dtype(probs, log_probs))


def mutual_information(
    probs: Tensor | None = None, *, log_probs: Tensor | None = None, validate: bool = True
) -> Tensor:
    """Entropy of the mean prediction minus the expected entropy: the epistemic uncertainty, which more data can reduce.

    Values that are negative by rounding are set to 0.

    Args:
        probs: Probabilities, shape (..., S, B, K), on the simplex; S weight samples, shared by the batch.
        log_probs: Log-probabilities, instead of ``probs``; not logits.
        validate: Also validate values; synchronises with the device.

    Returns:
        Mutual information in nats, shape (..., B), between 0 and the logarithm of the smaller of S and K.

    Example:
        >>> mutual_information(torch.tensor([[[0.0, 1.0], [0.5, 0.5]], [[1.0, 0.0], [0.5, 0.5]]]))
        tensor([0.6931, 0.0000])
    """
    given, is_log = _one_of(probs, log_probs, validate, samples=True)
    if is_log:
        mean = torch.logsumexp(given, -3) - torch.tensor(given.shape[-3], dtype=given.dtype, device=given.device).log()
    else:
        mean = given.mean(-3)
    information = _entropy(mean, is_log) - _entropy(given, is_log).mean(-2)
    return information.clamp(min=0).to(_result_dtype(probs, log_probs))


def dirichlet_expected_entropy(alpha: Tensor, *, validate: bool = True) -> Tensor:
    r"""Expected entropy of class probabilities that have a Dirichlet distribution, in closed form.

    $$\mathrm{E}\, H(p) = \psi(\alpha_0 + 1) - \sum_k \frac{\alpha_k}{\alpha_0} \psi(\alpha_k + 1), \quad
    \alpha_0 = \sum_k \alpha_k .$$

    Args:
        alpha: Concentrations, shape (..., K), positive.
        validate: Also validate values; synchronises with the device.

    Returns:
        Expected entropy in nats, shape (...), between 0 and log K, float32 or wider.

    Example:
        >>> dirichlet_expected_entropy(torch.tensor([1.0, 1.0]))  # of a uniform score
        tensor(0.5000)
    """
    return _dirichlet_expected_entropy(_concentrations(alpha, validate)).to(result_dtype(alpha))


def dirichlet_mutual_information(alpha: Tensor, *, validate: bool = True) -> Tensor:
    """Entropy of the mean of a Dirichlet distribution minus its expected entropy, in closed form.

    Args:
        alpha: Concentrations, shape (..., K), positive.
        validate: Also validate values; synchronises with the device.

    Returns:
        Mutual information in nats, shape (...), at least 0, float32 or wider.

    Example:
        >>> dirichlet_mutual_information(torch.tensor([1.0, 1.0]))  # log 2 - 1/2
        tensor(0.1931)
    """
    a = _concentrations(alpha, validate)
    information = _entropy(a / a.sum(-1, keepdim=True), is_log=False) - _dirichlet_expected_entropy(a)
    return information.clamp(min=0).to(result_dtype(alpha))


def _entropy(given: Tensor, is_log: bool) -> Tensor:
    if not is_log:
        terms: Tensor = torch.special.entr(given)
        return terms.sum(-1)
    floored = given.clamp(min=LOG_PROB_FLOOR)  # 0 times -inf is NaN; exp(-1e4) is 0 as well
    return (floored.exp() * -floored).sum(-1)


def _dirichlet_expected_entropy(a: Tensor) -> Tensor:
    total = a.sum(-1, keepdim=True)
    expected = torch.digamma(total.squeeze(-1) + 1) - (a / total * torch.digamma(a + 1)).sum(-1)
    return expected.clamp(min=0)


def _concentrations(alpha: Tensor, validate: bool) -> Tensor:
    _checks.floating("alpha", alpha)
    if alpha.ndim < 1 or alpha.shape[-1] < 2:
        raise ValueError(f"`alpha` must have shape (..., classes), 2 or more classes, but got {tuple(alpha.shape)}")
    if validate and not ((alpha > 0) & (alpha < torch.inf)).all():
        raise ValueError("`alpha` must be positive and finite everywhere, but some concentrations are not")
    return widen(alpha, working_dtype(alpha))


def _one_of(probs: Tensor | None, log_probs: Tensor | None, validate: bool, *, samples: bool) -> tuple[Tensor, bool]:
    """The given argument in the working type, and whether it holds logarithms."""
    if (probs is None) == (log_probs is None):
        came = "neither" if probs is None else "both"
        raise ValueError(f"one of `probs` and `log_probs` must be given, but got {came}")
    name, given = ("probs", probs) if log_probs is None else ("log_probs", log_probs)
    assert given is not None
    _checks.floating(name, given)
    wanted = "(..., samples, examples, classes)" if samples else "(..., classes)"
    if given.ndim < (3 if samples else 1) or given.shape[-1] < 2:
        raise ValueError(f"`{name}` must have shape {wanted}, 2 or more classes, but got {tuple(given.shape)}")
    if samples and given.shape[-3] == 0:
        raise ValueError(f"`{name}` must hold at least one sample, but got shape {tuple(given.shape)}")
    if validate and given.numel() > 0:
        if log_probs is None:
            _checks.on_simplex(name, given)
        else:
            _checks.log_probs(torch.atleast_2d(given), num_classes=given.shape[-1], validate=True)
    return widen(given, working_dtype(given)), log_probs is not None


def _result_dtype(probs: Tensor | None, log_probs: Tensor | None) -> torch.dtype:
    given = probs if log_probs is None else log_probs
    assert given is not None
    return result_dtype(given)

r"""How uncertain is a prediction, and why: entropy, and its split into noise of the data and doubt about the weights.

With draws $p_1, \ldots, p_S$ of a prediction, one a weight draw, and their mean $\bar p$,

$$\underbrace{H(\bar p)}_{\text{entropy}} = \underbrace{\tfrac1S \sum_s H(p_s)}_{\text{expected entropy}}
+ \underbrace{\tfrac1S \sum_s \mathrm{KL}(p_s \,\|\, \bar p)}_{\text{mutual information}} .$$

The expected entropy is what remains when the weights are known; the mutual information is what data can still remove.
All are in nats and differentiable, stay on the device, and are computed in double precision where it has it.
"""

import torch
from torch import Tensor

from selbo import _checks
from selbo._numerics import LOG_PROB_FLOOR, result_dtype, widen, working_dtype


def entropy(probs: Tensor | None = None, *, log_probs: Tensor | None = None, validate: bool = True) -> Tensor:
    r"""Entropy of class probabilities, $-\sum_k p_k \log p_k$ with $0 \log 0 = 0$, in nats.

    Args:
        probs: Probabilities, shape (..., K), on the simplex.
        log_probs: Their logarithms, in the place of ``probs``; not logits.
        validate: Check the values too, not only shapes and types; waits for the device.

    Returns:
        Shape (...), between 0 and log K, at least float32.

    Example:
        >>> entropy(torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))
        tensor([0.6931, 0.0000])
    """
    given, is_log = _one_of(probs, log_probs, validate, draws=False)
    return _entropy(given, is_log).to(_result_dtype(probs, log_probs))


def expected_entropy(probs: Tensor | None = None, *, log_probs: Tensor | None = None, validate: bool = True) -> Tensor:
    """Mean over weight draws of the entropy of each: the noise of the data, as the network sees it.

    Args:
        probs: Probabilities, shape (..., S, B, K), on the simplex.
        log_probs: Their logarithms, in the place of ``probs``; not logits.
        validate: Check the values too, not only shapes and types; waits for the device.

    Returns:
        Shape (..., B), in nats, between 0 and the entropy of the mean.

    Example:
        >>> # two draws of one prediction
        >>> expected_entropy(torch.tensor([[[0.5, 0.5]], [[1.0, 0.0]]]))
        tensor([0.3466])
    """
    given, is_log = _one_of(probs, log_probs, validate, draws=True)
    return _entropy(given, is_log).mean(-2).to(_result_dtype(probs, log_probs))


def mutual_information(
    probs: Tensor | None = None, *, log_probs: Tensor | None = None, validate: bool = True
) -> Tensor:
    """Entropy of the mean prediction less the expected entropy: doubt that more data could remove.

    Rounding could make it negative; it is then 0.

    Args:
        probs: Probabilities, shape (..., S, B, K), on the simplex; S weight draws, shared by the batch.
        log_probs: Their logarithms, in the place of ``probs``; not logits.
        validate: Check the values too, not only shapes and types; waits for the device.

    Returns:
        Shape (..., B), in nats, between 0 and the logarithm of the smaller of S and K.

    Example:
        >>> mutual_information(torch.tensor([[[0.0, 1.0], [0.5, 0.5]], [[1.0, 0.0], [0.5, 0.5]]]))
        tensor([0.6931, 0.0000])
    """
    given, is_log = _one_of(probs, log_probs, validate, draws=True)
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
        validate: Check the values too, not only shapes and types; waits for the device.

    Returns:
        Shape (...), in nats, between 0 and log K, at least float32.

    Example:
        >>> dirichlet_expected_entropy(torch.tensor([1.0, 1.0]))  # of a uniform score
        tensor(0.5000)
    """
    return _dirichlet_expected_entropy(_concentrations(alpha, validate)).to(result_dtype(alpha))


def dirichlet_mutual_information(alpha: Tensor, *, validate: bool = True) -> Tensor:
    """Entropy of the mean of a Dirichlet distribution less its expected entropy, in closed form.

    Args:
        alpha: Concentrations, shape (..., K), positive.
        validate: Check the values too, not only shapes and types; waits for the device.

    Returns:
        Shape (...), in nats, at least 0 and at least float32.

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
    floored = given.clamp(min=LOG_PROB_FLOOR)  # 0 times -inf is no number; exp(-1e4) is 0 all the same
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


def _one_of(probs: Tensor | None, log_probs: Tensor | None, validate: bool, *, draws: bool) -> tuple[Tensor, bool]:
    """Whichever was given, wide, and whether it is logarithms."""
    if (probs is None) == (log_probs is None):
        came = "neither" if probs is None else "both"
        raise ValueError(f"one of `probs` and `log_probs` must be given, but got {came}")
    name, given = ("probs", probs) if log_probs is None else ("log_probs", log_probs)
    assert given is not None
    _checks.floating(name, given)
    wanted = "(..., draws, examples, classes)" if draws else "(..., classes)"
    if given.ndim < (3 if draws else 1) or given.shape[-1] < 2:
        raise ValueError(f"`{name}` must have shape {wanted}, 2 or more classes, but got {tuple(given.shape)}")
    if draws and given.shape[-3] == 0:
        raise ValueError(f"`{name}` must hold at least one draw, but got shape {tuple(given.shape)}")
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

"""The handle of a network, made on the spot, and the public functions that take either of them."""

import torch
from torch import Tensor, nn

from selbo.nn.gaussian import gaussians
from selbo.posteriors.mean_field import MeanField
from selbo.posteriors.posterior import Deterministic, Posterior


def as_posterior(model: nn.Module | Posterior) -> Posterior:
    """The posterior of a network: `MeanField` if `to_bayesian` made it, else `Deterministic`.

    It walks through the network once. Make it once, and pass it wherever a network is expected.

    Args:
        model: A network; a posterior is returned as it is.
    """
    if isinstance(model, Posterior):
        return model
    if not isinstance(model, nn.Module):
        raise ValueError(f"`model` must be a torch module or a selbo posterior, but got {type(model).__name__}")
    return MeanField(model) if gaussians(model) else Deterministic(model)


def forward_samples(
    bnn: nn.Module | Posterior,
    inputs: Tensor,
    num_samples: int,
    *,
    generator: torch.Generator | None = None,
    chunk_size: int | None = None,
    estimator: str = "shared",
) -> Tensor:
    """Logits under weights sampled from the posterior, Eq. (2) before its mean.

    Each sample is one set of weights for all inputs. The network is called once with S x B rows: layers without weights
    see one large batch, so BatchNorm in training mode takes its statistics over all samples and updates its running
    ones once; dropout has a mask for each row.

    Args:
        bnn: A network made by `to_bayesian`, whose first dimension is the batch throughout, or a posterior.
        inputs: Shape (B, ...).
        num_samples: S, at least 1; one sample costs one pass of the deterministic network.
        generator: Source of the noise; torch's own if not given.
        chunk_size: At most this many samples at a time, to bound memory. The samples are the same for any size; but
            BatchNorm in training mode then sees one chunk at a time.
        estimator: ``"shared"``: one set of weights per sample, for all inputs. ``"local"`` (local reparameterisation:
            the outputs of linear layers and convolutions are sampled, not their weights) and ``"flipout"`` give each
            input weights of its own. Their logits have the right distribution input by input, which is all that a data
            term needs, and less noisy gradients; but a summary is about one function, so its likelihood is wrong with
            them.

    Returns:
        Shape (S, B, K).

    Example:
        >>> from selbo.nn.convert import to_bayesian
        >>> with torch.random.fork_rng():
        ...     bnn = to_bayesian(nn.Linear(4, 3))
        >>> generator = torch.Generator().manual_seed(0)
        >>> forward_samples(bnn, torch.ones(5, 4), num_samples=2, generator=generator).shape
        torch.Size([2, 5, 3])
    """
    posterior = _bayesian(bnn)
    return posterior.forward_samples(
        inputs, num_samples, generator=generator, chunk_size=chunk_size, estimator=estimator
    )


def kl_divergence(bnn: nn.Module | Posterior) -> Tensor:
    """KL divergence of the posterior over all weights from their prior, second term of Eq. (1).

    Args:
        bnn: A network made by `to_bayesian`, or a posterior.

    Returns:
        In nats, shape (), at least 0.
    """
    posterior = _bayesian(bnn)
    kl = posterior.kl_divergence()
    if kl is None:
        raise ValueError(f"`bnn` must have a KL divergence, but {type(posterior).__name__} has none")
    return kl


def _bayesian(model: nn.Module | Posterior) -> Posterior:
    posterior = as_posterior(model)
    if not posterior.is_bayesian:
        raise ValueError(
            f"`bnn` must be a network made by selbo.to_bayesian, but {type(posterior.network).__name__} "
            "has no posterior"
        )
    return posterior

"""`as_posterior`, and public functions that accept a network or a posterior."""

import torch
from torch import Tensor, nn

from selbo.nn.gaussian import gaussians
from selbo.posteriors.mean_field import MeanField
from selbo.posteriors.posterior import Deterministic, Posterior


def as_posterior(model: nn.Module | Posterior) -> Posterior:
    """The posterior of a network: `MeanField` if `to_bayesian` made it, else `Deterministic`.

    Creating it traverses the network once. Create it once and pass it wherever a network is expected.

    Args:
        model: A network; a posterior is returned unchanged.
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

    Each sample is one set of weights for all inputs. The network is called once with S x B rows. Layers without weights
    process one large batch, so BatchNorm in training mode computes its statistics over all samples and updates its
    running statistics once; dropout uses one mask per row.

    Args:
        bnn: A network made by `to_bayesian`, whose first dimension is the batch throughout, or a posterior.
        inputs: Shape (B, ...).
        num_samples: S, at least 1; one sample costs one pass of the deterministic network.
        generator: Source of the noise; torch's default generator if not given.
        chunk_size: Largest number of samples per pass, to bound memory. The samples are the same for any size, but
            BatchNorm in training mode then processes one chunk at a time.
        estimator: ``"shared"``: one set of weights per sample, for all inputs. ``"local"`` (local reparameterisation,
            which samples the outputs of linear layers and convolutions instead of their weights) and ``"flipout"`` use
            separate weights for each input. Their logits have the correct distribution for each input, which suffices
            for the likelihood of the labels, and less noisy gradients. A summary describes one function, so its
            likelihood is wrong with them.

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
        KL divergence in nats, shape (), at least 0.
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

"""Variational inference: the evidence lower bound of a Bayesian network."""

from selbo.objectives.label_shift import LabelShift
from selbo.objectives.objective import Objective


class ELBO(Objective):
    r"""The evidence lower bound, Eq. (1).

    $$\mathrm{E}_q \sum_i \log p(y_i \mid x_i, \theta) - \mathrm{KL}(q \,\|\, p) .$$

    Args:
        num_data: N, the number of training examples.
        kl_weight: Factor of the KL divergence; below one the posterior is tempered, openly.
        kl_warmup: Number of steps over which the factor of the KL grows; 0 for none.
        estimator: How the network draws, see `forward_samples`.
        label_shift: Class fractions where labels come from and at the place of use, if these differ: a `LabelShift`.

    Example:
        >>> import torch
        >>> from selbo.nn import to_bayesian
        >>> with torch.random.fork_rng():
        ...     bnn = to_bayesian(torch.nn.Linear(4, 3))
        >>> generator = torch.Generator().manual_seed(0)
        >>> objective = ELBO(num_data=100)
        >>> terms = objective(
        ...     bnn, torch.ones(8, 4), torch.arange(8) % 3, num_samples=2, generator=generator
        ... )
        >>> bool(terms.elbo == terms.log_likelihood - terms.kl)
        True
    """

    for_plain = False

    def __init__(
        self,
        num_data: int,
        *,
        kl_weight: float = 1.0,
        kl_warmup: int = 0,
        estimator: str = "shared",
        label_shift: LabelShift | None = None,
    ) -> None:
        super().__init__(
            num_data,
            kl_weight=kl_weight,
            kl_warmup=kl_warmup,
            estimator=estimator,
            label_shift=label_shift,
        )

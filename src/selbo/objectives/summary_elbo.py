"""The Summary ELBO: labels, weights, and what the predictions should look like."""

from selbo.objectives.label_shift import LabelShift
from selbo.objectives.summaries import Summaries, WithSummaries


class SummaryELBO(WithSummaries):
    r"""The Summary ELBO, Eq. (7), the evidence lower bound of labels and summary together, Eq. (4).

    $$\mathrm{E}_q \Bigl[ \sum_i \log p(y_i \mid x_i, \theta) + \log \mathrm{DP}(s_0 \mid s_\theta, \alpha) \Bigr]
    - \mathrm{KL}(q \,\|\, p) .$$

    The expectation is a mean over weight draws, each shared by the whole batch: the summary is about one function.

    Args:
        summary: What the predictions should look like: a `SummaryLikelihood`, or several (class fractions and
            confidence, or one for each place of use), whose terms add up.
        num_data: N, the number of training examples.
        kl_weight: Factor of the KL divergence; below one the posterior is tempered, openly.
        kl_warmup: Number of steps over which the factor of the KL grows; 0 for none.
        summary_weight: Factor of the summary term; the concentration of the summary is the Bayesian way to weigh it.
        summary_warmup: Number of steps over which that factor grows; 0 for none. If not given, the term waits for the
            labels: see `labels_first`.
        estimator: How the network draws. All but ``"shared"`` give each input weights of its own and change the
            summary term (docs/networks.md has numbers); they are refused unless the next argument says so.
        accept_approximation: Take such an estimator nevertheless.
        label_shift: Class fractions where labels come from and at the place of use, if these differ: a `LabelShift`.

    Example:
        >>> import torch, selbo
        >>> with torch.random.fork_rng():
        ...     bnn = selbo.to_bayesian(torch.nn.Linear(4, 2))
        >>> summary = selbo.SummaryLikelihood(
        ...     selbo.ScoreBins.equal(5), selbo.expect(accuracy=0.9)
        ... )
        >>> objective = SummaryELBO(summary, num_data=100)
        >>> generator = torch.Generator().manual_seed(0)
        >>> terms = objective(
        ...     bnn, torch.ones(8, 4), torch.arange(8) % 2, num_samples=2, generator=generator
        ... )
        >>> torch.testing.assert_close(
        ...     terms.elbo, terms.log_likelihood - terms.kl + terms.log_summary
        ... )
    """

    for_plain = False

    def __init__(
        self,
        summary: Summaries,
        num_data: int,
        *,
        kl_weight: float = 1.0,
        kl_warmup: int = 0,
        summary_weight: float = 1.0,
        summary_warmup: int | None = None,
        estimator: str = "shared",
        accept_approximation: bool = False,
        label_shift: LabelShift | None = None,
    ) -> None:
        super().__init__(
            summary,
            num_data,
            kl_weight=kl_weight,
            kl_warmup=kl_warmup,
            summary_weight=summary_weight,
            summary_warmup=summary_warmup,
            estimator=estimator,
            label_shift=label_shift,
        )
        if not self.summaries:
            raise ValueError(
                f"`summary` must be a selbo.SummaryLikelihood, or several in a list, but got {type(summary).__name__}"
            )
        if estimator != "shared" and not accept_approximation:
            raise ValueError(
                f"`estimator` must be 'shared' beside a summary, which is about one draw of the whole network, but got "
                f"{estimator!r}: pass accept_approximation=True to take it nevertheless"
            )

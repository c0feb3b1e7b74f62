"""Ensembles: networks of one architecture, stacked and trained side by side, whose predictions are averaged."""

import copy
import math
from collections.abc import Callable
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from selbo import _checks
from selbo.nn.gaussian import gaussians
from selbo.posteriors.posterior import Posterior, tensor_answer
from selbo.random import derive

SUMMARY_OF: Final = ("members", "mixture")


class Ensemble(Posterior):
    r"""A deep ensemble of k deterministic networks that `selbo.fit` trains side by side, in one process.

    The tensors of the members are stacked, and one pass computes all members. Each member is trained as on its own:
    `fit` minimises the sum of their losses, and records the mean. `selbo.predict` gives the mixture, the mean of the
    members' probabilities, for any ``num_samples``.

    Each member has its own initial weights, BatchNorm statistics, dropout masks and optimiser state. The order of the
    batches, the augmentation, the learning rate and the number of steps are the same for all members. Validation and
    the selection of weights use the mixture. A moving average of a summary (``ema_decay``) is the mean over members.

    **Members or mixture.** Let $p_j$ be the prediction of member $j$, $\bar p = \frac1k \sum_j p_j$ the mixture, and
    $s[p]$ the histogram of predictions over the regions of a summary. The summary term is one of

    $$\frac1k \sum_j \log \mathrm{DP}(s_0 \mid s[p_j], \alpha) \quad\text{or}\quad
    \log \mathrm{DP}(s_0 \mid s[\bar p], \alpha) .$$

    ``"members"`` is the term of the Summary ELBO, whose summary is about the function of one set of weights, with the
    members as samples. The part of a member does not contain the other members, so each is the network of a separate
    run, and every subset of the members is an ensemble of the same kind.

    ``"mixture"`` is about the predictions that are used, and so is a statement about accuracy and confidence. It does
    not carry over from members to mixture: $\max_c \bar p_c \le \frac1k \sum_j \max_c p_{jc}$, with equality only if
    some class is the most probable one for every member. If every member has the stated confidence, the mixture has
    less wherever they disagree; if it is also at least as accurate as they are, it is underconfident. The term
    contains the members only through $\bar p$, so its derivative by $p_j$ is $\frac1k$ times that by $\bar p$, the same
    for all members: for each input it moves all of them towards the same classes. It determines the mixture, not
    whether members agree and are less confident, or disagree and are more confident. A single member need not have the
    stated confidence, so use all k together.

    Choose ``"mixture"`` if you state the accuracy or confidence of the ensemble, and ``"members"`` if members are to be
    independent, used alone, or weighted afterwards. A belief about *mean* probabilities needs no choice: the mean is
    linear, so what holds for every member holds for the mixture. If members agree, terms and gradients are the same.
    The likelihood of the labels is always that of each member. Dropout masks differ between members, so with dropout
    the mixture in training is less confident than the mixture that predicts.

    The layers must support `torch.vmap`; recurrent layers do not.

    Args:
        make_network: Called without arguments once per member. Must return a new deterministic network, initialised
            from torch's global random state, which is seeded for each member and restored afterwards.
        num_members: k.
        seed: Seed for the initial weights. A member depends on the seed and its number, not on k.
        summary_of: ``"members"`` or ``"mixture"``: the predictions that a summary, or another further term of the
            objective, is about.

    Attributes:
        network: The architecture; each of its tensors has one more dimension in front, for the members. It cannot be
            called; `member` returns a network that can.

    Example:
        >>> import selbo
        >>> inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        >>> labels = (inputs[:, 0] > 0).long()
        >>> ensemble = Ensemble(lambda: nn.Linear(4, 2), 3, seed=0)
        >>> result = selbo.fit(
        ...     ensemble, selbo.CrossEntropy(64), (inputs, labels), steps=100, learning_rate=0.1
        ... )
        >>> prediction = selbo.predict(
        ...     ensemble, inputs, generator=torch.Generator().manual_seed(0)
        ... )
        >>> bool((prediction.classes == labels).double().mean() > 0.9)
        True
        >>> ensemble.member(2)(inputs).shape
        torch.Size([64, 2])
    """

    is_bayesian = False
    of_bayesian: ClassVar[bool] = False
    """Whether members are networks made by `to_bayesian`."""

    def __init__(
        self, make_network: Callable[[], nn.Module], num_members: int, *, seed: int = 0, summary_of: str = "members"
    ) -> None:
        if not callable(make_network) or isinstance(make_network, nn.Module):
            raise ValueError(
                f"`make_network` must be a function that returns a network, but got {type(make_network).__name__}"
            )
        self.num_members = _checks.whole("num_members", num_members, at_least=1)
        self.seed = _checks.whole("seed", seed, at_least=0)
        self.summary_of = _checks.one_of("summary_of", summary_of, SUMMARY_OF)
        super().__init__(_stack([self._make(make_network, derive(seed, "member", j)) for j in range(self.num_members)]))
        # owners instead of tensors: moving a module to another device replaces its buffers
        self._owners = [
            (f"{path}.{name}" if path else name, module, name)
            for path, module in self.network.named_modules()
            for named in (module.named_parameters, module.named_buffers)
            for name, _ in named(recurse=False, remove_duplicate=False)
        ]

    def _make(self, make_network: Callable[[], nn.Module], seed: int) -> nn.Module:
        network = _make(make_network, seed)
        if bool(gaussians(network)) != self.of_bayesian:
            wanted = "a network made by selbo.to_bayesian" if self.of_bayesian else "a deterministic network"
            came = "is deterministic" if self.of_bayesian else "was made by selbo.to_bayesian"
            raise ValueError(f"`make_network` must return {wanted}, but it {came}")
        return network

    def member(self, number: int) -> nn.Module:
        """A copy of one member, from 0, as a network of its own."""
        if not 0 <= _checks.whole("number", number, at_least=0) < self.num_members:
            raise ValueError(f"`number` must be less than {self.num_members}, but got {number}")
        with torch.no_grad():
            return _with_tensors(self.network, lambda value: value[number].clone())

    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> None:
        """Return None: there is no noise, and the samples are the members."""

    def forward_noise(
        self,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        estimator: str = "shared",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Outputs of each member: (k, B, K)."""
        tensors = {path: getattr(module, name) for path, module, name in self._owners}
        return torch.vmap(self._forward, (0, None), randomness="different")(tensors, inputs)

    def _forward(self, tensors: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return tensor_answer(functional_call(self.network, tensors, (inputs,), tie_weights=False))

    def summarised(self, log_probs: Tensor) -> Tensor:
        """Log-probabilities of the members or of their mixture: (k, B, K) -> (k, B, K) or (1, B, K)."""
        if self.summary_of == "members":
            return log_probs
        return log_probs.logsumexp(0, keepdim=True) - math.log(self.num_members)

    def use_channels_last(self) -> None:
        """Leave the weights as they are: stacked convolutions run as one with groups."""

    def settings(self) -> dict[str, Any]:
        """Number of members, and what a summary is about."""
        return {"num_members": self.num_members, "summary_of": self.summary_of}


def _make(make_network: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Call a function with torch seeded, and restore torch's random state."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)
        network = make_network()
    if not isinstance(network, nn.Module):
        raise ValueError(f"`make_network` must return a torch module, but returned {type(network).__name__}")
    return network


def _stack(members: list[nn.Module]) -> nn.Module:
    """A copy of the first network, each of whose tensors holds those of all networks, stacked."""
    described = [
        {name: (value.shape, value.dtype, value.requires_grad) for name, value in _named_tensors(each)}
        for each in members
    ]
    if any(type(each) is not type(members[0]) for each in members) or any(each != described[0] for each in described):
        raise ValueError("`make_network` must return networks of the same architecture, but they differ")
    if len({id(value) for each in members for _, value in _named_tensors(each)}) < len(members) * len(described[0]):
        raise ValueError("`make_network` must return a new network at each call, but two of them share tensors")
    parameters, buffers = stack_module_state(members)
    trained = [value for value in parameters.values() if value.requires_grad]
    for one in range(1, len(members)):
        if trained and all(torch.equal(value[0], value[one]) for value in trained):
            raise ValueError(
                "`make_network` must draw initial weights from torch's global random state, but two members have the "
                "same weights"
            )
    stacked = {**parameters, **buffers}
    by_id = {id(value): stacked[name] for name, value in _named_tensors(members[0])}
    return _with_tensors(members[0], lambda value: by_id[id(value)].detach())


def _named_tensors(network: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers, each once."""
    return [*network.named_parameters(), *network.named_buffers()]


def _with_tensors(network: nn.Module, change: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of a network with other parameters and buffers; those that are shared stay shared."""
    memo: dict[int, Any] = {}
    for _, value in _named_tensors(network):
        changed = change(value)
        is_parameter = isinstance(value, nn.Parameter)
        memo[id(value)] = nn.Parameter(changed, requires_grad=value.requires_grad) if is_parameter else changed
    return copy.deepcopy(network, memo)

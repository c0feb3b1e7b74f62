"""MC dropout: a network trained with dropout, whose dropout stays on in predictions."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from selbo.nn.gaussian import gaussians
from selbo.posteriors.posterior import Posterior, draw_seeds, tensor_answer

BY_CHANNEL: Final = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
"""Layers that drop whole channels."""

NOT_SUPPORTED: Final = (nn.AlphaDropout, nn.FeatureAlphaDropout)


class MCDropout(Posterior):
    """A network whose dropout stays on when it predicts (Gal and Ghahramani, ICML 2016).

    Train the network as usual and wrap it afterwards; `selbo.predict` then averages over masks. All other layers are in
    evaluation mode. A sample is one set of masks, the same for all inputs, which is the same as removing columns of the
    weights of the next layer: so a sample is one function, which a belief can be about. The distribution of the
    prediction for each input is that of a mask per input.

    Args:
        network: A deterministic network with layers of type ``nn.Dropout`` or ``nn.Dropout1d`` to ``3d``, whose first
            dimension is the batch; not copied. Dropout by a function, as inside ``nn.MultiheadAttention``, stays off.

    Example:
        >>> import selbo
        >>> network = selbo.models.MLP(
        ...     (4, 8, 2), dropout=0.5, generator=torch.Generator().manual_seed(0)
        ... )
        >>> generator = torch.Generator().manual_seed(0)
        >>> prediction = selbo.predict(
        ...     MCDropout(network), torch.ones(5, 4), 16, generator=generator
        ... )
        >>> bool((prediction.mutual_information > 0).all())
        True
    """

    can_compile = False

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        if gaussians(network):
            raise ValueError("`network` must be deterministic, but it was made by selbo.to_bayesian: pass the original")
        for name, layer in network.named_modules():
            if isinstance(layer, NOT_SUPPORTED):
                raise ValueError(f"`network` must have no {type(layer).__name__}, but {name!r} is one")
        self._layers = [
            each for each in network.modules() if isinstance(each, (nn.Dropout, *BY_CHANNEL)) and each.p > 0
        ]
        if not self._layers:
            raise ValueError("`network` must have dropout layers with a probability above 0, but has none")

    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> Tensor:
        """A seed for the masks of each sample, (S, 1)."""
        return draw_seeds(num_samples, self.device, generator)

    def forward_noise(
        self,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        estimator: str = "shared",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Outputs of the network under the masks of each sample: (S, B, K)."""
        assert noise is not None
        self.require_shared(estimator)
        outputs = []
        for seed in noise[:, 0].tolist():
            with self._masked(_Masks(torch.Generator(inputs.device).manual_seed(seed))):
                outputs.append(tensor_answer(self.network(inputs)))
        return torch.stack(outputs)

    @contextmanager
    def _masked(self, masks: "_Masks") -> Iterator[None]:
        modes = [layer.training for layer in self._layers]
        handles = [layer.register_forward_hook(masks) for layer in self._layers]
        try:
            for layer in self._layers:
                layer.eval()
            yield
        finally:
            for layer, training, handle in zip(self._layers, modes, handles, strict=True):
                layer.training = training
                handle.remove()


class _Masks:
    """Hook of dropout layers in evaluation mode: multiplies their outputs by masks without the dimension of the batch.

    Args:
        generator: Source of the masks, in the order in which layers are called.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def __call__(self, layer: nn.Module, _: tuple[Any, ...], outputs: Tensor) -> Tensor:
        shape = (1, *outputs.shape[1:])
        if isinstance(layer, BY_CHANNEL):
            shape = (1, outputs.shape[1], *[1] * (outputs.ndim - 2))
        assert isinstance(layer.p, float | int)
        keep = 1 - layer.p
        mask = torch.rand(shape, generator=self.generator, device=outputs.device) < keep
        return outputs * (mask / keep if keep else mask).to(outputs.dtype)

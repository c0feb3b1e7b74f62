"""Last-layer Laplace: a Gaussian posterior over the weights of the last layer, added to a trained network."""

import copy
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo._numerics import result_dtype
from selbo.nn import storage
from selbo.nn.gaussian import gaussians
from selbo.posteriors.posterior import Posterior, evaluation_mode, tensor_answer

LAPLACE_FORMAT: Final = "selbo-last-layer-laplace-1"
FACTORS: Final = "laplace/"
"""Prefix of the curvature in the state; names of parameters contain no slash."""

CURVATURES: Final = ("auto", "full", "kronecker")
MOST_FULL: Final = 2048
"""Largest number of weights for which ``"auto"`` is the full curvature: its eigenvalues take some seconds on a CPU."""


class LastLayerLaplace(Posterior):
    r"""The Laplace approximation for the last layer of a trained network (Daxberger et al., NeurIPS 2021).

    The features $\phi_n$ that enter the last layer are taken as given, with a 1 for the bias. The Hessian of the
    negative log-likelihood of a softmax by the weights of that layer is

    $$H = \sum_n (\mathrm{diag}(p_n) - p_n p_n^\top) \otimes \phi_n \phi_n^\top .$$

    It needs no labels, and is the same as the Gauss-Newton matrix. The posterior is $N(\hat w, (H + \tau I)^{-1})$
    around the trained weights $\hat w$, with the prior precision $\tau$. For many weights, $H$ is replaced by a
    product of small factors (Kronecker-factored):

    $$\frac1N \left(\sum_n \mathrm{diag}(p_n) - p_n p_n^\top\right) \otimes \left(\sum_n \phi_n \phi_n^\top\right) .$$

    Call `observe` with all training inputs. Then choose the prior precision: by `maximise_evidence`, by
    `selbo.choose_scale` for a belief about unlabelled inputs, or on validation data. Predictions run the network once,
    and the last layer once per sample.

    Args:
        network: A trained deterministic network that ends with a linear layer; not copied. Do not change its weights
            afterwards.
        prior_precision: $\tau$; one over the variance of the prior of each weight.
        curvature: ``"full"``, ``"kronecker"``, or ``"auto"``: full for up to 2048 weights.
        layer: Name of the last layer; by default the last ``nn.Linear`` of the network.

    Example:
        >>> import selbo
        >>> generator = torch.Generator().manual_seed(0)
        >>> inputs = torch.randn(64, 4, generator=generator)
        >>> labels = (inputs[:, 0] > 0).long()
        >>> network = selbo.models.MLP((4, 8, 2), generator=generator)
        >>> result = selbo.fit(network, selbo.CrossEntropy(64), (inputs, labels), steps=100)
        >>> posterior = LastLayerLaplace(network)
        >>> posterior.observe(inputs)
        >>> posterior.maximise_evidence() > 0
        True
        >>> selbo.predict(posterior, inputs, 16, generator=generator).probs.shape
        torch.Size([64, 2])
    """

    can_scale = True
    can_compile = False

    def __init__(
        self,
        network: nn.Module,
        *,
        prior_precision: float = 1.0,
        curvature: str = "auto",
        layer: str | None = None,
    ) -> None:
        super().__init__(network)
        if gaussians(network):
            raise ValueError("`network` must be deterministic, but it was made by selbo.to_bayesian: pass the original")
        self.prior_precision = prior_precision
        self.layer = _find_layer(network, layer)
        """Name of the last layer."""
        last = self._last()
        self._size = last.in_features + (last.bias is not None)
        self._classes = last.out_features
        self.num_weights = self._classes * self._size
        _checks.one_of("curvature", curvature, CURVATURES)
        if curvature == "auto":
            curvature = "full" if self.num_weights <= MOST_FULL else "kronecker"
        self.curvature = curvature
        """``"full"`` or ``"kronecker"``."""
        self.count = 0
        """Number of inputs that were observed."""
        self._factors = {
            name: torch.zeros(shape, dtype=torch.float64, device=self.device) for name, shape in self._shapes().items()
        }
        self._roots: _Eigen | None = None

    @property
    def prior_precision(self) -> float:
        """One over the variance of the prior of each weight of the last layer."""
        return self._prior_precision

    @prior_precision.setter
    def prior_precision(self, value: float) -> None:
        self._prior_precision = _checks.positive("prior_precision", value)

    @torch.no_grad()
    def observe(self, inputs: Tensor, *, batch_size: int = 1024) -> None:
        """Add the curvature of training inputs; call it once with all of them, or once per batch of a loader.

        Args:
            inputs: Shape (B, ...), on the device of the network.
            batch_size: Number of inputs per pass.
        """
        blocks = inputs.split(_checks.whole("batch_size", batch_size, at_least=1))
        self._factors = {name: each.to(self.device) for name, each in self._factors.items()}
        with evaluation_mode(self.network):
            for block in blocks:
                features, logits = (each.double() for each in self._features(block))
                probs = logits.softmax(-1)
                # diag(p) - p p^T is root times its transpose
                root = torch.diag_embed(probs.sqrt()) - probs.unsqueeze(2) * probs.sqrt().unsqueeze(1)
                if self.curvature == "full":
                    rows = torch.einsum("bkc,bi->bcki", root, features).reshape(-1, self.num_weights)
                    self._factors["hessian"] += rows.T @ rows
                else:
                    self._factors["outputs"] += torch.einsum("bkc,blc->kl", root, root)
                    self._factors["inputs"] += features.T @ features
                self.count += len(block)
        self._roots = None

    def log_evidence(self, log_likelihood: float = 0.0) -> float:
        r"""The logarithm of the marginal likelihood, as Laplace's method approximates it.

        $$\log p(D \mid \hat w) + \tfrac12 P \log \tau - \tfrac12 \tau \lVert \hat w \rVert^2
        - \tfrac12 \log \det (H + \tau I)$$

        Args:
            log_likelihood: $\log p(D \mid \hat w)$, the sum over training examples; it does not depend on the prior.
        """
        eigenvalues, precision = self._eigen().values, self.prior_precision
        weights = self._weights()
        prior = self.num_weights * math.log(precision) - precision * float(weights.square().sum())
        return log_likelihood + 0.5 * (prior - float((eigenvalues + precision).log().sum()))

    def maximise_evidence(self) -> float:
        """Set the prior precision to the one of the largest marginal likelihood; no labels are needed.

        The weights are kept as they are. The maximum is unique: it is where the precision times the squared norm of the
        weights is the effective number of parameters (MacKay, 1992).

        Returns:
            The prior precision.
        """
        from scipy.optimize import brentq

        eigenvalues, norm = self._eigen().values, float(self._weights().square().sum())
        if norm == 0 or float(eigenvalues.max()) == 0:
            raise ValueError("`network` must have a last layer with weights other than 0 and observed inputs")

        def excess(log_precision: float) -> float:
            precision = math.exp(log_precision)
            return precision * norm - float((eigenvalues / (eigenvalues + precision)).sum())

        high = math.log(self.num_weights / norm)  # the effective number of parameters is below the number of weights
        low = high
        while excess(low) > 0:
            low -= 1
        self.prior_precision = math.exp(brentq(excess, low, high, xtol=1e-12))
        return self.prior_precision

    def covariance(self) -> Tensor:
        """Posterior covariance of the weights of the last layer, (P, P), float64; with the scale.

        The order is that of the rows of the weight, each followed by its bias.
        """
        found = self._eigen()
        eye = torch.eye(self.num_weights, dtype=torch.float64, device=found.values.device)
        root = found.rotate(eye * self._inverse_roots(found.values), self._classes).flatten(
            1
        )  # rows are columns of the root
        return root.T @ root

    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> Tensor:
        """Standard normal noise for all weights of the last layer, one row per sample: (S, P)."""
        weight = self._last().weight
        noise = torch.empty(num_samples, self.num_weights, dtype=weight.dtype, device=weight.device)
        for row in noise:  # so that samples do not depend on the number per pass
            row.normal_(generator=generator)
        return noise

    def forward_samples(
        self,
        inputs: Tensor,
        num_samples: int,
        *,
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
        estimator: str = "shared",
    ) -> Tensor:
        """Logits for S samples, (S, B, K); ``chunk_size`` is not used, as the network runs once for all of them."""
        return super().forward_samples(inputs, num_samples, generator=generator, estimator=estimator)

    def forward_noise(
        self,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        estimator: str = "shared",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Logits (S, B, K) for given noise (S, P) of the weights of the last layer."""
        assert noise is not None
        self.require_shared(estimator)
        found = self._eigen()
        features, logits = self._features(inputs)
        rows = noise.double() * self._inverse_roots(found.values)
        change = found.rotate(rows, self._classes).to(noise.dtype)  # (S, K, D)
        moved = features.to(change) @ change.transpose(1, 2)
        return logits.to(result_dtype(logits)) + moved

    def mean_network(self) -> nn.Module:
        """A copy of the network."""
        return copy.deepcopy(self.network)

    def settings(self) -> dict[str, Any]:
        """Prior precision, form of the curvature and name of the last layer."""
        return {"prior_precision": self.prior_precision, "curvature": self.curvature, "layer": self.layer}

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors of the network, and the curvature."""
        return {**self.network.state_dict(), **self._stored()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a result of `state_dict`."""
        self.network.load_state_dict({name: each for name, each in state.items() if not name.startswith(FACTORS)})
        self._restore(state)

    def structure(self) -> dict[str, Any]:
        """Type and shape of every tensor, and the settings."""
        found = storage.describe_tensors(self.network, format_name=LAPLACE_FORMAT)
        shapes = {FACTORS + name: ["torch.float64", list(shape)] for name, shape in self._shapes().items()}
        shapes[FACTORS + "count"] = ["torch.int64", []]
        return {**found, "tensors": {**found["tensors"], **shapes}, "settings": self.settings()}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write network and curvature to one safetensors file, atomically."""
        return storage.write_tensors({**storage.unique_tensors(self.network), **self._stored()}, path, self._header())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read a file that `save` wrote for a network of the same structure, with its prior precision."""
        tensors, found = storage.read_tensors(path, self.structure())
        own = {name: each for name, each in tensors.items() if not name.startswith(FACTORS)}
        self.network.load_state_dict(own, strict=False)  # shared tensors are stored under one name
        self._restore(tensors)
        self.prior_precision = found["settings"]["prior_precision"]
        self._scale = found.get("scale", 1.0)

    def _stored(self) -> dict[str, Tensor]:
        factors = {FACTORS + name: each for name, each in self._factors.items()}
        return {**factors, FACTORS + "count": torch.tensor(self.count)}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._factors = {name: state[FACTORS + name].to(each, copy=True) for name, each in self._factors.items()}
        self.count, self._roots = int(state[FACTORS + "count"]), None

    def _shapes(self) -> dict[str, tuple[int, int]]:
        if self.curvature == "full":
            return {"hessian": (self.num_weights, self.num_weights)}
        return {"outputs": (self._classes, self._classes), "inputs": (self._size, self._size)}

    def _last(self) -> nn.Linear:
        last = self.network.get_submodule(self.layer)
        assert isinstance(last, nn.Linear)
        return last

    def _weights(self) -> Tensor:
        """Weights of the last layer with the bias as the last column, (K, D), float64."""
        last = self._last()
        bias = None if last.bias is None else last.bias.detach().double().unsqueeze(1)
        return _append(last.weight.detach().double(), bias)

    def _features(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs of the last layer with a 1 for the bias, (B, D), and its outputs, (B, K)."""
        seen: list[tuple[Tensor, Tensor]] = []
        last = self._last()
        handle = last.register_forward_hook(lambda _, given, found: seen.append((given[0], found)))
        try:
            answer = tensor_answer(self.network(inputs))
        finally:
            handle.remove()
        if len(seen) != 1 or answer.shape != seen[0][1].shape or not torch.equal(answer, seen[0][1]):
            raise ValueError(
                f"`layer` must be the last operation of the network and be called once, but {self.layer!r} is not: its "
                "outputs are not those of the network"
            )
        features, logits = seen[0]
        if features.ndim != 2:
            raise ValueError(f"`layer` must have inputs of shape (B, D), but they are {tuple(features.shape)}")
        return _append(features, None if last.bias is None else features.new_ones(len(features), 1)), logits

    def _inverse_roots(self, eigenvalues: Tensor) -> Tensor:
        """Posterior standard deviations along the eigenvectors, (P,)."""
        return self.scale * (eigenvalues + self.prior_precision).rsqrt()

    def _eigen(self) -> "_Eigen":
        if self.count == 0:
            raise ValueError("the curvature is empty: call `observe` with the training inputs first")
        if self._roots is None or self._roots.values.device != self.device:
            factors = {name: each.to(self.device) for name, each in self._factors.items()}
            self._roots = _Eigen.of(factors, self.count)
        return self._roots


class _Eigen(NamedTuple):
    """Eigenvalues of the curvature, (P,), and its eigenvectors: of the whole, or of both factors of a product."""

    values: Tensor
    vectors: tuple[Tensor, ...]

    @staticmethod
    def of(factors: dict[str, Tensor], count: int) -> "_Eigen":
        if "hessian" in factors:
            values, vectors = torch.linalg.eigh(factors["hessian"])
            return _Eigen(values.clamp(min=0), (vectors,))
        (first, outputs), (second, inputs) = (torch.linalg.eigh(factors[name]) for name in ("outputs", "inputs"))
        values = torch.outer(first.clamp(min=0), second.clamp(min=0)).flatten() / count
        return _Eigen(values, (outputs, inputs))

    def rotate(self, rows: Tensor, num_classes: int) -> Tensor:
        """Vectors in the basis of the eigenvectors, (S, P), as changes of the weights: (S, K, D)."""
        if len(self.vectors) == 1:
            return (rows @ self.vectors[0].T).reshape(len(rows), num_classes, -1)
        outputs, inputs = self.vectors
        return outputs @ rows.reshape(len(rows), num_classes, -1) @ inputs.T


def _append(columns: Tensor, last: Tensor | None) -> Tensor:
    return columns if last is None else torch.cat([columns, last], 1)


def _find_layer(network: nn.Module, name: str | None) -> str:
    layers = {each: module for each, module in network.named_modules() if isinstance(module, nn.Linear)}
    if name is None:
        if not layers:
            raise ValueError("`network` must end with a linear layer, but has none")
        return str(list(layers)[-1])
    if name not in layers:
        raise ValueError(f"`layer` must be the name of a linear layer, one of {sorted(layers)}, but got {name!r}")
    return name

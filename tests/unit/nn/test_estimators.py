"""Local reparameterisation and flipout: each input right by itself, inputs independent of each other."""

import pytest
import torch
from torch import nn

from selbo.nn import to_bayesian
from selbo.posteriors import forward_samples

DRAWS = 4000
LAYERS = {
    "linear": (lambda: nn.Linear(3, 2), (3,)),
    "linear of sequences": (lambda: nn.Linear(3, 2), (2, 3)),
    "linear without bias": (lambda: nn.Linear(3, 2, bias=False), (3,)),
    "conv1d": (lambda: nn.Conv1d(2, 2, 2, padding=1, padding_mode="circular"), (2, 3)),
    "conv2d": (lambda: nn.Conv2d(2, 2, 2, groups=2), (2, 3, 3)),
}


def make(name, seed=0):
    build, shape = LAYERS[name]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layer = build().double()
    inputs = torch.randn(4, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return to_bayesian(layer, init_std=0.3), inputs


def assert_zero_mean(values, z=6.0):
    """Each column's mean within z standard errors of zero (z = 6: about 2e-9 false alarms an entry)."""
    errors = values.std(0) / len(values) ** 0.5
    assert (values.mean(0) / errors).abs().max() < z


def exact_moments(bnn, inputs):
    """Mean and variance of the outputs of one layer with independent Gaussian weights, from the plain layer itself."""
    from torch.func import functional_call

    mean = bnn(inputs)
    variances = {name: posterior.std.square() for name, posterior in zip(bnn.names, bnn.posteriors, strict=True)}
    return mean.detach(), functional_call(bnn.plain, variances, (inputs.square(),)).detach()


@pytest.mark.parametrize("estimator", ["shared", "local", "flipout"])
@pytest.mark.parametrize("name", LAYERS)
def test_each_output_has_the_right_mean_and_variance(name, estimator, seed):
    bnn, inputs = make(name)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        outputs = forward_samples(bnn, inputs, DRAWS, generator=generator, estimator=estimator).flatten(1)
    mean, variance = (moment.flatten() for moment in exact_moments(bnn, inputs))
    assert_zero_mean(outputs - mean)
    assert_zero_mean((outputs - mean).square() - variance)


@pytest.mark.parametrize("name", LAYERS)
def test_inputs_are_tied_by_a_shared_draw_and_by_no_other(name, seed):
    """The same input twice: one value under shared draws, independent deviations under local ones."""
    bnn, inputs = make(name)
    twice = inputs[:1].expand(2, *inputs.shape[1:])
    with torch.no_grad():
        draw = {
            estimator: forward_samples(
                bnn, twice, DRAWS, generator=torch.Generator().manual_seed(seed), estimator=estimator
            ).flatten(2)
            for estimator in ("shared", "local", "flipout")
        }
    torch.testing.assert_close(draw["shared"][:, 0], draw["shared"][:, 1], rtol=1e-12, atol=1e-12)
    mean = exact_moments(bnn, twice)[0].flatten(1)
    products = ((draw["local"] - mean)[:, 0] * (draw["local"] - mean)[:, 1]).flatten(1)
    assert_zero_mean(products)
    assert not torch.allclose(draw["flipout"][:, 0], draw["flipout"][:, 1])


def test_one_draw_and_chunks_work():
    bnn, inputs = make("conv2d")
    for estimator in ("local", "flipout"):
        for samples, chunk in ((1, None), (5, 2)):
            generator = torch.Generator().manual_seed(0)
            logits = forward_samples(bnn, inputs, samples, generator=generator, chunk_size=chunk, estimator=estimator)
            assert logits.shape[:2] == (samples, 4)
            assert logits.isfinite().all()


def test_gradients_reach_means_and_spreads():
    for estimator in ("local", "flipout"):
        bnn, inputs = make("linear")
        forward_samples(
            bnn, inputs, 3, generator=torch.Generator().manual_seed(0), estimator=estimator
        ).sum().backward()
        for parameter in bnn.parameters():
            assert parameter.grad.isfinite().all()
            assert (parameter.grad != 0).any()


def test_a_vanishing_posterior_has_finite_gradients():
    bnn, inputs = make("linear without bias")
    forward_samples(bnn, 0 * inputs, 3, generator=torch.Generator().manual_seed(0), estimator="local").sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in bnn.parameters())


def test_other_layers_keep_shared_draws():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        bnn = to_bayesian(nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2)), init_std=0.3)
    tokens = torch.tensor([[1, 2], [1, 2]])
    for estimator in ("local", "flipout"):
        logits = forward_samples(bnn, tokens, 4, generator=torch.Generator().manual_seed(0), estimator=estimator)
        assert logits.shape == (4, 2, 2)


def test_an_unknown_estimator_is_refused():
    bnn, inputs = make("linear")
    with pytest.raises(ValueError, match=r"`estimator` must be one of \['flipout', 'local', 'shared'\], but got 'lrt'"):
        forward_samples(bnn, inputs, 2, estimator="lrt")


@pytest.mark.parametrize("estimator", ["local", "flipout"])
def test_a_layer_that_does_more_than_its_kind_is_drawn_as_a_whole(estimator: str) -> None:
    class Shifted(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) + 5

    with torch.random.fork_rng():
        shifted, hooked = Shifted(8, 2, bias=False), nn.Linear(8, 2, bias=False)
    hooked.register_forward_hook(lambda module, args, output: output + 5)
    for layer in (shifted, hooked):
        bnn = to_bayesian(layer, init_std=0.1)
        drawn = forward_samples(
            bnn, torch.ones(1, 8), 4000, estimator=estimator, generator=torch.Generator().manual_seed(0)
        )
        assert drawn.std(0).flatten().tolist() == pytest.approx([0.1 * 8**0.5] * 2, rel=0.1)

"""S draws in one pass against S plain networks with the weights put in by hand."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from unit.nn.nets import BATCH, DRAWS, NAMES, WITH_BATCH_NORM, Apply, bayesian, build, leaves, noise_for, reference

from selbo.nn import to_bayesian
from selbo.nn.gaussian import gaussians
from selbo.nn.layers import VariationalLayer
from selbo.posteriors import MeanField, forward_samples

TOLERANCE = {"rtol": 0, "atol": 1e-10}


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def single_draws(bnn: nn.Module, inputs: Tensor, noise: Tensor) -> Tensor:
    return torch.cat([MeanField(bnn).forward_noise(inputs, noise[s : s + 1]) for s in range(len(noise))])


def assert_clean(bnn: nn.Module) -> None:
    assert all(each.sampled is None for each in bnn.modules() if isinstance(each, VariationalLayer))


def assert_right(net: nn.Module, bnn: nn.Module, inputs: Tensor) -> None:
    """All draws at once, one at a time, and by hand; values and gradients."""
    noise = noise_for(net)
    parameters = gaussians(bnn)
    many = MeanField(bnn).forward_noise(inputs, noise)
    single = single_draws(bnn, inputs, noise)
    weights = leaves(net)
    by_hand = reference(net, inputs, noise, weights)
    assert many.shape[:2] == (DRAWS, BATCH)
    torch.testing.assert_close(many, by_hand, **TOLERANCE)
    torch.testing.assert_close(single, by_hand, **TOLERANCE)
    assert (many[0] - many[1]).abs().max() > 1e-3

    direction = torch.randn(many.shape, generator=generator(), dtype=torch.float64)
    wanted = [each for pair in weights.values() for each in pair]
    expected = torch.autograd.grad((by_hand * direction).sum(), wanted, materialize_grads=True)
    leaves_of_bnn = [each for posterior in parameters for each in (posterior.mean, posterior.rho)]
    for outputs in (many, single):
        got = torch.autograd.grad((outputs * direction).sum(), leaves_of_bnn, materialize_grads=True)
        for index, posterior in enumerate(parameters):
            torch.testing.assert_close(got[2 * index], expected[2 * index], rtol=1e-10, atol=1e-10)
            slope = torch.sigmoid(posterior.rho)  # of softplus
            torch.testing.assert_close(got[2 * index + 1], expected[2 * index + 1] * slope, rtol=1e-9, atol=1e-10)
    assert_clean(bnn)


@pytest.mark.parametrize("name", NAMES)
def test_draws_in_evaluation_mode(name: str) -> None:
    """Eq. (2): the network at each draw of its weights, all draws at once, one at a time, and by hand."""
    net, bnn, inputs = bayesian(name)
    assert_right(net.eval(), bnn.eval(), inputs)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITH_BATCH_NORM])
def test_draws_in_training_mode(name: str) -> None:
    net, bnn, inputs = bayesian(name)
    assert_right(net.train(), bnn.train(), inputs)


@pytest.mark.parametrize("name", NAMES)
def test_draws_without_gradients(name: str) -> None:
    net, bnn, inputs = bayesian(name)
    net.eval(), bnn.eval()
    noise = noise_for(net)
    weights = leaves(net)
    expected = reference(net, inputs, noise, weights)  # with gradients: the plain network does not take a fast path
    with torch.no_grad():
        got = MeanField(bnn).forward_noise(inputs, noise)
        single = single_draws(bnn, inputs, noise)
    torch.testing.assert_close(got, expected, **TOLERANCE)
    torch.testing.assert_close(single, expected, **TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_one_input_and_draws_that_are_not_the_batch(name: str) -> None:
    net, bnn, inputs = bayesian(name)
    net.eval(), bnn.eval()
    for rows, draws in ((1, 5), (2, 3), (3, 2)):
        noise = noise_for(net, draws)
        expected = reference(net, inputs[:rows], noise, leaves(net))
        torch.testing.assert_close(MeanField(bnn).forward_noise(inputs[:rows], noise), expected, **TOLERANCE)


def test_inputs_get_the_gradients_of_all_draws() -> None:
    for name in ("mlp", "lenet", "groups", "linear of sequences"):
        net, bnn, inputs = bayesian(name)
        noise = noise_for(net)
        one, two = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
        (got,) = torch.autograd.grad(MeanField(bnn).forward_noise(one, noise).square().sum(), one)
        (expected,) = torch.autograd.grad(reference(net, two, noise, leaves(net)).square().sum(), two)
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


# --- batch normalisation ---------------------------------------------------------------------------------------------


def test_batch_norm_sees_one_batch_of_all_draws() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, momentum=0.3), nn.Linear(4, 3)).double()
    bnn = to_bayesian(net, init_std=0.4).train()
    inputs = torch.randn(7, 5, generator=generator(1), dtype=torch.float64)
    noise = noise_for(net)
    weight, bias = net[0].weight.detach(), net[0].bias.detach()
    hidden = torch.cat(
        [inputs @ (weight + 0.4 * row[:20].reshape(4, 5)).T + bias + 0.4 * row[20:24] for row in noise]
    )  # (S B, 4)
    scaled = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
    outputs = [
        block @ (net[2].weight + 0.4 * row[24:36].reshape(3, 4)).T + net[2].bias + 0.4 * row[36:]
        for block, row in zip(scaled.chunk(DRAWS), noise, strict=True)
    ]
    got = MeanField(bnn).forward_noise(inputs, noise)
    torch.testing.assert_close(got, torch.stack(outputs), **TOLERANCE)
    assert bnn[1].num_batches_tracked == 1
    torch.testing.assert_close(bnn[1].running_mean, 0.3 * hidden.mean(0), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(bnn[1].running_var, 0.7 + 0.3 * hidden.var(0), rtol=1e-10, atol=1e-12)
    forward_samples(bnn, inputs, 4, generator=generator())
    assert bnn[1].num_batches_tracked == 2
    before = copy.deepcopy(bnn.state_dict())
    forward_samples(bnn.eval(), inputs, 4, generator=generator())
    assert all(torch.equal(before[key], value) for key, value in bnn.state_dict().items())


@pytest.mark.parametrize("name", WITH_BATCH_NORM)
def test_batch_norm_of_deep_networks_is_updated_once(name: str) -> None:
    _, bnn, inputs = bayesian(name)
    norms = [each for each in bnn.modules() if isinstance(each, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert len(norms) >= 3
    forward_samples(bnn.train(), inputs, 3, generator=generator())
    assert [int(each.num_batches_tracked) for each in norms] == [1] * len(norms)


# --- generators and chunks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "lenet", "transformer"])
def test_the_generator_decides_the_draws(name: str) -> None:
    _, bnn, inputs = bayesian(name)
    bnn.eval()
    source = generator(8)
    first = forward_samples(bnn, inputs, 5, generator=source)
    second = forward_samples(bnn, inputs, 5, generator=source)
    assert first.shape[:2] == (5, BATCH)
    assert torch.equal(first, forward_samples(bnn, inputs, 5, generator=generator(8)))
    every = torch.cat([first, second]).flatten(1)
    assert torch.cdist(every, every).add(torch.eye(10)).min() > 1e-6, "all draws differ, in a call and between calls"
    assert not torch.equal(first, forward_samples(bnn, inputs, 5, generator=generator(9)))


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 5, 8])
def test_chunks_do_not_change_the_draws(chunk_size: int) -> None:
    for name in ("mlp", "lenet", "transformer"):
        _, bnn, inputs = bayesian(name)
        bnn.eval()
        one, two = generator(), generator()
        whole = forward_samples(bnn, inputs, 5, generator=one)
        parts = forward_samples(bnn, inputs, 5, generator=two, chunk_size=chunk_size)
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
        assert torch.equal(one.get_state(), two.get_state())


def test_chunks_bound_the_rows_in_the_network() -> None:
    seen = []
    net = nn.Sequential(Apply(lambda x: seen.append(len(x)) or x), build("a single layer")[0])
    bnn = to_bayesian(net)
    seen.clear()
    forward_samples(bnn, torch.zeros(3, 5, dtype=torch.float64), 5, generator=generator(), chunk_size=2)
    assert seen == [6, 6, 3]


def test_the_generator_is_used_alone_and_torch_s_own_if_none_is_given() -> None:
    _, bnn, inputs = bayesian("mlp")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        own = forward_samples(bnn, inputs, 2)
    assert torch.equal(own, forward_samples(bnn, inputs, 2, generator=generator(3)))


@pytest.mark.parametrize("name", ["mlp", "lenet", "transformer", "attention", "resnet"])
def test_a_draw_is_shared_by_the_batch(name: str) -> None:
    _, bnn, inputs = bayesian(name)
    logits = forward_samples(bnn.eval(), inputs[:1].expand(4, *inputs.shape[1:]), 3, generator=generator())
    torch.testing.assert_close(logits, logits[:, :1].expand_as(logits), rtol=0, atol=1e-12)
    assert (logits[0] - logits[1]).abs().max() > 1e-3


def test_one_draw() -> None:
    net, bnn, inputs = bayesian("mlp")
    logits = forward_samples(bnn, inputs, 1, generator=generator())
    assert logits.shape == (1, BATCH, 3)
    assert (logits[0] - net(inputs)).abs().max() > 1e-2


# --- state -----------------------------------------------------------------------------------------------------------


class Breaks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 4)
        self.broken = False

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if self.broken:
            raise KeyError("stop here")
        return y


@pytest.mark.parametrize("draws", [1, 3])
def test_state_is_clean_after_an_exception(draws: int) -> None:
    with torch.random.fork_rng():
        bnn = to_bayesian(Breaks(), init_std=1.0)
    inputs = torch.ones(2, 5)
    expected = bnn(inputs)
    bnn.broken = True
    with pytest.raises(KeyError, match="stop here"):
        forward_samples(bnn, inputs, draws, generator=generator())
    assert_clean(bnn)
    bnn.broken = False
    assert torch.equal(bnn(inputs), expected), "after it, the mean again"
    assert forward_samples(bnn, inputs, draws, generator=generator()).shape == (draws, 2, 4)


def test_copies_and_checkpoints() -> None:
    for name in ("lenet", "transformer", "vgg"):
        _, bnn, inputs = bayesian(name)
        bnn.eval()
        logits = forward_samples(bnn, inputs, 3, generator=generator())
        twin = copy.deepcopy(bnn)
        assert torch.equal(forward_samples(twin, inputs, 3, generator=generator()), logits)
        other = build(name)[0]
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(0.5)
        fresh = to_bayesian(other, prior_std=3.0, init_std=0.2).eval()
        assert not torch.allclose(forward_samples(fresh, inputs, 3, generator=generator()), logits)
        fresh.load_state_dict(bnn.state_dict())
        assert torch.equal(forward_samples(fresh, inputs, 3, generator=generator()), logits)
        assert [float(each.prior_std) for each in gaussians(fresh)] == [1.0] * len(gaussians(bnn))
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.zero_()
        assert torch.equal(forward_samples(bnn, inputs, 3, generator=generator()), logits), (
            "the copy has its own weights"
        )


def test_conversion_of_the_type() -> None:
    net, inputs = build("mlp")
    bnn = to_bayesian(net.float())
    assert forward_samples(bnn, inputs.float(), 2, generator=generator()).dtype == torch.float32
    bnn = bnn.to(torch.float64)
    assert all(value.dtype == torch.float64 for value in bnn.state_dict().values())
    assert forward_samples(bnn, inputs, 2, generator=generator()).dtype == torch.float64


def test_mixed_types_are_refused() -> None:
    bnn = to_bayesian(build("mlp")[0])
    bnn[0].float()
    with pytest.raises(ValueError, match="one device and of one type"):
        forward_samples(bnn, torch.ones(2, 5), 2, generator=generator())


@pytest.mark.parametrize("name", ["mlp", "lenet", "groups", "circular", "transposed 2d", "transformer", "attention"])
def test_autocast(name: str) -> None:
    net, inputs = build(name)
    bnn = to_bayesian(net.float(), init_std=0.1)
    inputs = inputs.float() if inputs.is_floating_point() else inputs
    exact = forward_samples(bnn, inputs, 3, generator=generator())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = forward_samples(bnn, inputs, 3, generator=generator())
    assert rough.isfinite().all()
    # eight bits a number, through a few layers
    assert (rough.float() - exact).abs().max() < 0.1 * exact.abs().max()
    rough.float().square().sum().backward()
    assert all(each.mean.grad.dtype == torch.float32 for each in gaussians(bnn))


@pytest.mark.parametrize("name", ["lenet", "vgg", "resnet", "groups", "circular", "transposed 2d"])
def test_channels_last(name: str) -> None:
    net, bnn, inputs = bayesian(name)
    bnn.eval()
    noise = noise_for(net)
    expected = reference(net.eval(), inputs, noise, leaves(net))
    got = MeanField(bnn).forward_noise(inputs.to(memory_format=torch.channels_last), noise)
    torch.testing.assert_close(got, expected, **TOLERANCE)


# --- networks that cannot be drawn from in one pass, and bad arguments -----------------------------------------------


class ReadsWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(5, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x @ self.hidden.weight)


@pytest.mark.parametrize("draws", [1, 3])
def test_reading_weights_during_draws_is_an_error(draws: int) -> None:
    with torch.random.fork_rng():
        net = ReadsWeights()
    bnn = to_bayesian(net)
    inputs = torch.ones(2, 5)
    torch.testing.assert_close(bnn(inputs), net(inputs))
    with pytest.raises(ValueError, match=r"reads `weight` of a variational layer.*`exclude`"):
        forward_samples(bnn, inputs, draws, generator=generator())
    assert_clean(bnn)
    excluded = to_bayesian(net, exclude="hidden")
    assert forward_samples(excluded, inputs, draws, generator=generator()).shape == (draws, 2, 3)


def test_a_first_dimension_that_is_not_the_batch_is_an_error() -> None:
    with torch.random.fork_rng():
        linear = to_bayesian(nn.Sequential(Apply(lambda x: x.transpose(0, 1)), nn.Linear(4, 3)))
        layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0)
        attention = to_bayesian(nn.Sequential(Apply(lambda x: x.transpose(0, 1)), layer))
        mixed = to_bayesian(nn.Sequential(Apply(lambda x: (x, x, x)), CallWith(nn.MultiheadAttention(4, 2))))
    inputs = torch.ones(2, 5, 4)
    for bnn in (linear, attention):
        with pytest.raises(ValueError, match=r"called with 5 rows during 3 samples for 2 inputs.*first dimension"):
            forward_samples(bnn, inputs, 3, generator=generator())
        assert_clean(bnn)
    with pytest.raises(ValueError, match="attention was called with 5 rows during 3 samples for 2"):
        forward_samples(mixed, inputs, 3, generator=generator())


class CallWith(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, args: tuple[Tensor, ...]) -> Tensor:
        return self.layer(*args)[0]


def test_an_answer_that_is_not_one_row_an_input_is_an_error() -> None:
    with torch.random.fork_rng():
        bnn = to_bayesian(nn.Sequential(nn.Linear(5, 3), Apply(lambda x: x.mean(0, keepdim=True))))
    with pytest.raises(ValueError, match="one row per input, but returned 1 rows for 6"):
        forward_samples(bnn, torch.ones(2, 5), 3, generator=generator())


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (torch.ones(2, 5), {"num_samples": 0}, "`num_samples`"),
        (torch.ones(2, 5), {"num_samples": -1}, "`num_samples`"),
        (torch.ones(2, 5), {"num_samples": 2.5}, "`num_samples`"),
        (torch.ones(2, 5), {"num_samples": 2, "chunk_size": 0}, "`chunk_size`"),
        (torch.ones(0, 5), {"num_samples": 2}, "`inputs` must be a tensor.*(0, 5)"),
        (torch.tensor(1.0), {"num_samples": 2}, "`inputs` must be a tensor"),
        ([[1.0] * 5], {"num_samples": 2}, "`inputs` must be a tensor.*list"),
    ],
)
def test_bad_arguments(inputs: Tensor, options: dict[str, int], message: str) -> None:
    bnn = to_bayesian(build("a single layer")[0])
    with pytest.raises(ValueError, match=re.escape(message).replace(r"\.\*", ".*")):
        forward_samples(bnn, inputs, **options, generator=generator())


def test_a_plain_network_is_refused() -> None:
    with pytest.raises(ValueError, match="`bnn` must be a network made by"):
        forward_samples(build("mlp")[0], torch.ones(2, 5), 2, generator=generator())


# --- networks whose layers do more than their kind -------------------------------------------------------------------


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class ByKeyword(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(input=x)


class MaskedTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor) -> Tensor:
        padding = x > 8
        padding[:, 0] = False
        return self.encoder(self.embed(x), src_key_padding_mask=padding)[:, 0]


class MasksByRow(nn.Module):
    """Attention masks of three dimensions, a matrix for each row and head, that differ between draws."""

    def __init__(self, how: str, batch_first: bool = True) -> None:
        super().__init__()
        self.how = how
        self.mix = nn.Linear(5, 4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.mix(x[:, None] * torch.linspace(-1, 1, 6, dtype=x.dtype)[:, None]))  # (rows, 6, 4)
        mask = (x[:, :, :1] * x[:, None, :, 0].flip(1) > 0.05).repeat_interleave(2, 0)
        mask[1::2] = ~mask[1::2]  # the heads differ
        mask |= torch.ones_like(mask).triu(1)
        mask &= ~torch.eye(6, dtype=torch.bool)
        padding = x[:, :, 1] > 0.3
        padding[:, :] &= torch.arange(6) > 4
        tokens = x if self.attention.batch_first else x.transpose(0, 1)
        flat = torch.ones(6, 6, dtype=torch.bool).triu(1)
        if self.how == "positional":
            y, _ = self.attention(tokens, tokens, tokens, padding, False, mask)
        elif self.how == "by name":
            y, _ = self.attention(tokens, tokens, value=tokens, attn_mask=mask, key_padding_mask=padding)
        else:
            y, _ = self.attention(tokens, tokens, tokens, None, attn_mask=flat, is_causal=True)
        return (y if self.attention.batch_first else y.transpose(0, 1)).sum(1)


class MaskedEncoder(nn.Module):
    """A mask for each row and head, and a padding mask, through nn.TransformerEncoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        padding = x > 8
        padding[:, 0] = False
        by_row = ((x[:, :, None] + x[:, None]) % 3 == 0).repeat_interleave(2, 0)
        by_row[:, :, 0] = False
        return self.encoder(self.embed(x), mask=by_row, src_key_padding_mask=padding)[:, 0]


def hooked() -> nn.Module:
    layer = nn.Linear(5, 3)
    layer.register_forward_hook(lambda module, args, output: 2 * output)
    return nn.Sequential(nn.Tanh(), layer)


REAL = torch.linspace(-2, 3, 15, dtype=torch.float64).reshape(3, 5)
TOKENS = torch.tensor([[0, 9, 3, 4], [1, 2, 10, 9], [8, 7, 6, 5]])
SPECIAL: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "changes its inputs in place": (lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3)), REAL),
    "a subclass with its own forward": (lambda: nn.Sequential(nn.Tanh(), Doubled(5, 3)), REAL),
    "inputs by keyword": (lambda: ByKeyword(nn.Linear(5, 3)), REAL),
    "a forward hook": (hooked, REAL),
    "encoder with a padding mask": (MaskedTransformer, TOKENS),
    "encoder with a mask for each row": (MaskedEncoder, TOKENS),
    "masks by row, positional": (lambda: MasksByRow("positional"), REAL),
    "masks by row, by name": (lambda: MasksByRow("by name"), REAL),
    "masks by row, sequence first": (lambda: MasksByRow("by name", batch_first=False), REAL),
    "one mask for all rows": (lambda: MasksByRow("flat"), REAL),
}


@pytest.mark.parametrize("draws", [1, 4])
@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("gradients", [True, False])
def test_special_networks(name: str, draws: int, gradients: bool) -> None:
    make, inputs = SPECIAL[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make().double().eval()
    bnn = to_bayesian(net, init_std=0.3).eval()
    noise = noise_for(net, draws)
    weights = {name: (mean, torch.full_like(mean, 0.3)) for name, (mean, _) in leaves(net).items()}
    expected = torch.cat([reference(net, inputs.clone(), row[None], weights) for row in noise])
    with torch.set_grad_enabled(gradients):
        got = MeanField(bnn).forward_noise(inputs.clone(), noise)
    torch.testing.assert_close(got, expected, **TOLERANCE)


def test_one_input_is_no_shared_memory() -> None:
    """The network may write into its rows, of which there are S even for a single input."""
    with torch.random.fork_rng():
        bnn = to_bayesian(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3)))
    assert forward_samples(bnn, torch.ones(1, 5), 4, generator=generator()).shape == (4, 1, 3)


# --- positions before the batch --------------------------------------------------------------------------------------


class SequenceFirst(nn.Module):
    """(B, T, 4) -> (B, 3), with the position first on the way."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.transpose(0, 1)).mean(0)


SEQUENCE_FIRST = {
    "linear": lambda: SequenceFirst(nn.Linear(4, 3)),
    "embedding": lambda: SequenceFirst(Apply(lambda x: x[..., 0].long()), nn.Embedding(3, 3)),
    "encoder": lambda: SequenceFirst(nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0)),
    "attention": lambda: SequenceFirst(
        Apply(lambda x: (x, x, x)), CallWith(nn.MultiheadAttention(4, 2, batch_first=True))
    ),
    "a layer with a hook": lambda: SequenceFirst(hooked_linear()),
}


def hooked_linear() -> nn.Module:
    layer = nn.Linear(4, 3)
    layer.register_forward_hook(lambda module, args, output: 2 * output)
    return layer


@pytest.mark.parametrize("length", [5, 6, 12, 18])  # 6 rows in all
@pytest.mark.parametrize("name", SEQUENCE_FIRST)
def test_positions_before_the_batch_are_noticed(name: str, length: int) -> None:
    with torch.random.fork_rng():
        bnn = to_bayesian(SEQUENCE_FIRST[name]())
    with pytest.raises(ValueError, match=r"called with .* during 3 samples for 2 inputs.*the batch"):
        forward_samples(bnn, torch.ones(2, length, 4), 3, generator=generator())
    assert_clean(bnn)
    assert forward_samples(bnn, torch.ones(2, length, 4), 1, generator=generator()).shape[:2] == (1, 2), (
        "one draw works"
    )


def test_positions_after_or_in_the_batch_are_no_error() -> None:
    with torch.random.fork_rng():
        linear, embedding = to_bayesian(nn.Linear(4, 3)), to_bayesian(nn.Embedding(5, 3))
        folded = to_bayesian(nn.Sequential(Apply(lambda x: x.flatten(0, 1)), nn.Linear(4, 3), nn.Unflatten(0, (-1, 6))))
        convolution = to_bayesian(nn.Sequential(nn.Conv1d(4, 6, 1), nn.Conv1d(6, 2, 1)))
    inputs = torch.ones(2, 6, 4)  # as many positions as rows of all draws
    assert forward_samples(linear, inputs, 3, generator=generator()).shape == (3, 2, 6, 3)
    assert forward_samples(embedding, inputs[..., 0].long(), 3, generator=generator()).shape == (3, 2, 6, 3)
    assert forward_samples(folded, inputs, 3, generator=generator()).shape == (3, 2, 6, 3)
    assert forward_samples(convolution, inputs.transpose(1, 2), 3, generator=generator()).shape == (3, 2, 2, 6)


# --- activation checkpoints ------------------------------------------------------------------------------------------


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant
        self.first, self.inner, self.head = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        inner = lambda h: torch.tanh(self.inner(torch.tanh(h)))  # noqa: E731
        return self.head(checkpoint(inner, self.first(x), use_reentrant=self.use_reentrant))


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_inside_the_network_is_right_for_means_and_an_error_for_draws_if_reentrant(
    use_reentrant: bool, draws: int
) -> None:
    """`test_checkpointing.py` has the others."""
    with torch.random.fork_rng():
        net = Checkpointed(use_reentrant)
        bnn, inputs = to_bayesian(net), torch.ones(2, 5)
        bnn(inputs).sum().backward()
        net(inputs).sum().backward()
        torch.testing.assert_close(gaussians(bnn)[2].mean.grad, net.inner.weight.grad)
        logits = forward_samples(bnn, inputs, draws, generator=generator())
        if use_reentrant:
            with pytest.raises(ValueError, match="samples are gone: pass use_reentrant=False"):
                logits.sum().backward()
        else:
            logits.sum().backward()


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_around_the_draws_is_right(use_reentrant: bool) -> None:
    _, bnn, inputs = bayesian("mlp")
    inputs.requires_grad_()

    def gradients(run: Callable[[], Tensor]) -> list[Tensor]:
        bnn.zero_grad()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            run().square().sum().backward()
        return [parameter.grad.clone() for parameter in bnn.parameters()]

    expected = gradients(lambda: forward_samples(bnn, inputs, 3))
    got = gradients(lambda: checkpoint(forward_samples, bnn, inputs, 3, use_reentrant=use_reentrant))
    for one, two in zip(got, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-14)
    with_generator = lambda x: forward_samples(bnn, x, 3, generator=generator())  # noqa: E731
    with torch.random.fork_rng():
        logits = checkpoint(with_generator, inputs, use_reentrant=use_reentrant)
        with pytest.raises(ValueError, match=r"`generator` must not be given .* checkpointing"):
            logits.sum().backward()

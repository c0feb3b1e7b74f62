"""From a plain network to a Bayesian one: what is converted, with which means, spreads and priors."""

from __future__ import annotations

import ast
import copy
import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from unit.nn.nets import NAMES, NORMS, Apply, SharedLayer, Transformer, bayesian, build, expected_std, weight_names

from selbo.nn import Relative, describe, mean_network, to_bayesian
from selbo.nn.gaussian import gaussians
from selbo.nn.layers import VariationalLayer
from selbo.posteriors import forward_samples, kl_divergence


def converted(bnn: nn.Module) -> list[str]:
    return [name for name, each in bnn.named_modules() if isinstance(each, VariationalLayer)]


def priors(bnn: nn.Module) -> list[float]:
    return [each.prior_std.item() for each in gaussians(bnn)]


def made(make: object) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().double()


# --- at the mean -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_at_the_mean_it_is_the_plain_network(name: str) -> None:
    net, inputs = build(name)
    before = copy.deepcopy(net.state_dict())
    modules = list(net.modules())
    bnn = to_bayesian(net)
    assert list(net.modules()) == modules
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items()), "the original is unchanged"
    names = weight_names(net)
    for own, each in zip(names, gaussians(bnn), strict=True):
        assert torch.equal(each.mean, net.get_parameter(own)), "means are the weights"
        assert each.mean.data_ptr() != net.get_parameter(own).data_ptr()
        assert each.mean.requires_grad
        assert each.rho.requires_grad
    for training in (True, False):
        net.train(training), bnn.train(training)
        torch.testing.assert_close(bnn(inputs), net(inputs), rtol=0, atol=1e-12)
        with torch.no_grad():
            torch.testing.assert_close(bnn(inputs), net(inputs), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_only_normalisation_stays_deterministic(name: str) -> None:
    net, bnn, _ = bayesian(name)
    posteriors = {id(parameter) for each in gaussians(bnn) for parameter in each.parameters()}
    others = [parameter for parameter in bnn.parameters() if id(parameter) not in posteriors]
    norms = [parameter for each in net.modules() if isinstance(each, NORMS) for parameter in each.parameters()]
    assert [each.shape for each in others] == [each.shape for each in norms]
    assert sum(each.mean.numel() for each in gaussians(bnn)) + sum(p.numel() for p in norms) == sum(
        p.numel() for p in net.parameters()
    )


def test_changing_one_network_leaves_the_other() -> None:
    net, bnn, inputs = bayesian("vgg")
    net.eval(), bnn.eval()
    expected = net(inputs)
    with torch.no_grad():
        for parameter in bnn.parameters():
            parameter.zero_()
    assert torch.equal(net(inputs), expected)


def test_the_fast_path_of_transformers_does_not_pass_by_the_draws() -> None:
    net, bnn, inputs = bayesian("transformer")
    net.eval(), bnn.eval()
    only_encoder = to_bayesian(net, only="encoder", init_std=0.5).eval()
    with torch.no_grad():
        torch.testing.assert_close(bnn(inputs), net(inputs), rtol=0, atol=1e-12)
        for draws in (1, 3):
            logits = forward_samples(only_encoder, inputs, draws, generator=torch.Generator().manual_seed(0))
            assert (logits - net(inputs)).abs().amax((1, 2)).min() > 1e-2


class MaskedEncoder(Transformer):
    def forward(self, x: Tensor) -> Tensor:
        padding = x > 8
        padding[:, 0] = False
        return self.head(self.encoder(self.embed(x), src_key_padding_mask=padding)[:, 0])


@pytest.mark.parametrize("training", [True, False])
def test_an_encoder_with_a_padding_mask(training: bool) -> None:
    net = made(MaskedEncoder).train(training)
    bnn = to_bayesian(net).train(training)
    inputs = torch.tensor([[0, 9, 3, 10], [1, 2, 10, 9], [8, 7, 6, 5]])
    expected = net(inputs)
    with torch.no_grad():
        torch.testing.assert_close(bnn(inputs), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(bnn(inputs), expected, rtol=0, atol=1e-12)


# --- spreads and priors ----------------------------------------------------------------------------------------------


def test_a_number_for_the_initial_std() -> None:
    bnn = to_bayesian(build("lenet")[0], init_std=0.07)
    for each in gaussians(bnn):
        torch.testing.assert_close(each.std, torch.full_like(each.std, 0.07), rtol=1e-10, atol=0)
    default = to_bayesian(build("lenet")[0])
    assert all(abs(each.std.max().item() - 0.01) < 1e-12 for each in gaussians(default))


def test_a_relative_initial_std_and_its_floor() -> None:
    net, _ = build("mlp")
    with torch.no_grad():
        net[0].weight[0] = 0
    bnn = to_bayesian(net, init_std=Relative(0.3, floor=0.05))
    for name, each in zip(weight_names(net), gaussians(bnn), strict=True):
        torch.testing.assert_close(each.std, expected_std(net.get_parameter(name)), rtol=1e-10, atol=0)
    first = gaussians(bnn)[0].std
    torch.testing.assert_close(first[0], torch.full_like(first[0], 0.05), rtol=1e-10, atol=0)
    assert first.max() > 0.06
    tiny = gaussians(to_bayesian(net, init_std=Relative(0.3)))[0].std
    torch.testing.assert_close(tiny[0], torch.full_like(tiny[0], 1e-4), rtol=1e-10, atol=0)
    assert repr(Relative(0.2)) == "Relative(0.2, floor=0.0001)"


def test_a_number_for_the_prior() -> None:
    assert priors(to_bayesian(build("mlp")[0])) == [1.0] * 6
    assert priors(to_bayesian(build("mlp")[0], prior_std=0.3)) == [0.3] * 6


@pytest.mark.parametrize(
    ("make", "fan_in"),
    [
        (lambda: nn.Linear(7, 3), 7),
        (lambda: nn.Conv1d(3, 5, 4), 12),
        (lambda: nn.Conv2d(3, 5, (2, 4)), 24),
        (lambda: nn.Conv2d(6, 4, 3, groups=2), 27),
        (lambda: nn.Conv3d(2, 5, (1, 2, 3)), 12),
        (lambda: nn.ConvTranspose1d(3, 5, 4), 12),
        (lambda: nn.ConvTranspose2d(3, 5, (2, 4)), 24),
        (lambda: nn.ConvTranspose3d(2, 7, (1, 2, 3)), 12),
        (lambda: nn.Embedding(9, 4), 1),
        (lambda: nn.MultiheadAttention(6, 2), 6),
    ],
)
def test_fan_in(make: object, fan_in: int) -> None:
    bnn = to_bayesian(made(make), prior_std="fan_in")
    assert priors(bnn) == pytest.approx([fan_in**-0.5] * len(gaussians(bnn)), rel=1e-14)


def test_transposed_convolution_with_groups_has_the_inputs_of_its_group() -> None:
    layer = made(lambda: nn.ConvTranspose1d(6, 4, 3, groups=2, bias=False))
    # an output channel hears the 3 input channels of its own group at 3 offsets
    with torch.no_grad():
        layer.weight.fill_(1.0)
    reached = layer(torch.ones(1, 6, 9, dtype=torch.float64))[0, 0, 4].item()
    assert priors(to_bayesian(layer, prior_std="fan_in")) == pytest.approx([reached**-0.5], rel=1e-14)


def test_priors_by_layer() -> None:
    net = build("mlp")[0]
    assert priors(to_bayesian(net, prior_std={"0": 0.2, "4": "fan_in"})) == [0.2, 0.2, 1.0, 1.0, 0.5, 0.5]
    assert priors(to_bayesian(net, prior_std={"0": 0.2, "*": 3})) == [0.2, 0.2, 3.0, 3.0, 3.0, 3.0]
    bnn = to_bayesian(made(Transformer), prior_std={"encoder.layers.*.linear?": 0.4, "encoder": 0.2, "head": 5.0})
    assert priors(bnn) == [1.0] + 2 * ([0.2] * 4 + [0.4] * 4) + [5.0] * 2


# --- what is converted -----------------------------------------------------------------------------------------------


def test_only_and_exclude() -> None:
    net = build("lenet")[0]
    assert converted(to_bayesian(net)) == ["0", "3", "6", "8"]
    assert converted(to_bayesian(net, only="8")) == ["8"]
    assert converted(to_bayesian(net, only=["0", "8"])) == ["0", "8"]
    assert converted(to_bayesian(net, only="[36]")) == ["3", "6"]
    assert converted(to_bayesian(net, exclude="0")) == ["3", "6", "8"]
    assert converted(to_bayesian(net, exclude=("0", "[68]"))) == ["3"]
    assert converted(to_bayesian(net, only="[036]", exclude="3")) == ["0", "6"]
    transformer = made(Transformer)
    inside = ["self_attn", "linear1", "linear2"]
    assert converted(to_bayesian(transformer, only="encoder.layers.1")) == [f"encoder.layers.1.{n}" for n in inside]
    assert converted(to_bayesian(transformer, only="*.linear1")) == [f"encoder.layers.{i}.linear1" for i in (0, 1)]
    assert converted(to_bayesian(transformer, exclude="encoder")) == ["embed", "head"]
    numbers = made(lambda: nn.Sequential(*[nn.Linear(2, 2) for _ in range(12)]))
    assert converted(to_bayesian(numbers, only="1")) == ["1"], "not 10 and 11"


def test_a_bayesian_last_layer() -> None:
    net, inputs = build("mlp")
    bnn = to_bayesian(net, only="4", init_std=0.5)
    hidden = net[:4](inputs)
    source, expected = torch.Generator().manual_seed(4), []
    for _ in range(3):
        z = torch.randn(15, generator=source, dtype=torch.float64)  # draw after draw
        expected.append(hidden @ (net[4].weight + 0.5 * z[:12].reshape(3, 4)).T + net[4].bias + 0.5 * z[12:])
    logits = forward_samples(bnn, inputs, 3, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(logits, torch.stack(expected), rtol=0, atol=1e-10)
    assert [name for name, _ in bnn.named_parameters() if not name.startswith("4")] == [
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    ]


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.inner(x)


UNSUPPORTED = {
    "lstm": (lambda: nn.Sequential(nn.LSTM(5, 4), Apply(lambda x: x[0]), nn.Linear(4, 3)), "0.weight_ih_l0", "0"),
    "bilinear": (lambda: nn.Sequential(Both(), nn.Linear(4, 3)), "0.both.weight", "0.both"),
    "a parameter of its own": (Scaled, "scale", "scale"),
    "a parameter further down": (lambda: nn.Sequential(nn.Linear(5, 5), Scaled()), "1.scale", "1.scale"),
}


class Both(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Bilinear(5, 5, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.both(x, x)


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_unsupported_layers_are_named_and_can_be_excluded(kind: str) -> None:
    make, parameter, name = UNSUPPORTED[kind]
    net = made(make)
    with pytest.raises(ValueError, match=f"cannot be made Bayesian, '{re.escape(parameter)}' of a ") as refused:
        to_bayesian(net)
    suggested = ast.literal_eval(re.search(r"exclude=(\[.*\])", str(refused.value))[1])
    assert suggested == [name]
    bnn = to_bayesian(net, exclude=name)
    inputs = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(3, 5)
    torch.testing.assert_close(bnn(inputs), net(inputs), rtol=0, atol=1e-12)
    logits = forward_samples(bnn, inputs, 2, generator=torch.Generator().manual_seed(0))
    assert logits.shape == (2, 3, 3)
    assert (logits[0] - logits[1]).abs().max() > 1e-3


def test_the_suggested_exclusion_covers_every_unsupported_layer() -> None:
    net = made(lambda: nn.Sequential(nn.LSTM(5, 4), Apply(lambda x: x[0]), nn.Bilinear(4, 4, 4), Scaled()))
    with pytest.raises(ValueError, match="of a LSTM") as refused:
        to_bayesian(net, exclude="3.inner")
    suggested = ast.literal_eval(re.search(r"exclude=(\[.*\])", str(refused.value))[1])
    assert suggested == ["3.inner", "0", "2", "3.scale"]
    assert converted(to_bayesian(net, exclude=suggested[1:])) == ["3.inner"]


def test_single_parameters_of_an_unsupported_layer_must_all_be_named() -> None:
    net = made(UNSUPPORTED["bilinear"][0])
    with pytest.raises(ValueError, match=r"'0\.both\.bias'"):
        to_bayesian(net, exclude="0.both.weight")
    assert converted(to_bayesian(net, exclude=["0.both.weight", "0.both.bias"])) == ["1"]
    assert converted(to_bayesian(net, only="1")) == ["1"], "what is not asked for need not be excluded"


def test_layers_without_learned_scales_and_frozen_ones() -> None:
    net = made(lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3)))
    assert converted(to_bayesian(net)) == ["0", "2"]


@pytest.mark.parametrize("name", ["0.bias", "*.bias"])
def test_a_single_parameter_of_a_supported_layer_can_be_excluded(name: str) -> None:
    bnn = to_bayesian(build("mlp")[0], exclude=name)
    assert (7,) not in [tuple(each.mean.shape) for each in gaussians(bnn)]


def test_a_prior_by_the_name_of_a_parameter_is_used_or_refused() -> None:
    try:
        bnn = to_bayesian(build("mlp")[0], prior_std={"0.weight": 0.2})
    except ValueError:
        return
    assert priors(bnn)[0] == 0.2


@pytest.mark.parametrize("name", ["first", "second"])
def test_a_shared_layer_excluded_under_one_name_is_refused_or_works(name: str) -> None:
    net = made(SharedLayer)
    inputs = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(3, 5)
    try:
        bnn = to_bayesian(net, exclude=name)
    except ValueError:
        return
    torch.testing.assert_close(bnn(inputs), net(inputs))


# --- sharing ---------------------------------------------------------------------------------------------------------


def test_what_is_shared_stays_shared() -> None:
    shared = bayesian("shared layer")[1]
    assert shared.first is shared.second
    tied = bayesian("tied weights")[1]
    assert tied.embed.posteriors[0] is tied.head.posteriors[0]
    assert tied.embed.posteriors[0] is not tied.mix.posteriors[0]


# --- describe --------------------------------------------------------------------------------------------------------


def table(bnn: nn.Module) -> tuple[dict[str, tuple[int, int]], tuple[int, int]]:
    header, *lines, last = describe(bnn).splitlines()
    assert header.split() == ["layer", "kind", "Bayesian", "deterministic"]
    rows = {line[:40].strip(): tuple(int(each) for each in line.split()[-2:]) for line in lines}
    assert len(rows) == len(lines)
    assert last.split()[0] == "all"
    return rows, tuple(int(each) for each in last.split()[-2:])


@pytest.mark.parametrize("name", NAMES)
def test_counts_add_up(name: str) -> None:
    _, bnn, _ = bayesian(name)
    rows, total = table(bnn)
    assert total == tuple(sum(column) for column in zip(*rows.values(), strict=True))
    weights = sum(each.mean.numel() for each in gaussians(bnn))
    assert total == (weights, sum(p.numel() for p in bnn.parameters()) - 2 * weights)


def test_counts_by_layer() -> None:
    net = made(Scaled)
    assert table(to_bayesian(net, exclude="scale")) == ({"(root)": (0, 3), "inner": (18, 0)}, (18, 3))
    vgg = build("vgg")[0]
    rows, total = table(to_bayesian(vgg, exclude="0"))
    expected = {"0": (0, 72), "1": (0, 8), "4": (185, 0), "5": (0, 10), "9": (66, 0), "10": (0, 12), "12": (21, 0)}
    assert rows == expected
    assert total == (272, 102)
    rows, _ = table(to_bayesian(made(Transformer), only="*.self_attn"))
    assert rows["encoder.layers.0.self_attn"] == (4 * 64 + 4 * 8, 0)
    assert rows["embed"] == (0, 88)


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": "head"}, "`only` names 'head'"),
        ({"exclude": ["0", "head"]}, "`exclude` names 'head'"),
        ({"prior_std": {"0": 1.0, "head": 1.0}}, "`prior_std` names 'head'"),
        ({"prior_std": 0.0}, "`prior_std`"),
        ({"prior_std": -1.0}, "`prior_std`"),
        ({"prior_std": float("nan")}, "`prior_std`"),
        ({"prior_std": {"0": -1.0}}, "`prior_std`"),
        ({"prior_std": "fan_out"}, "`prior_std`"),
        ({"init_std": 0.0}, "`init_std`"),
        ({"init_std": -0.1}, "`init_std`"),
        ({"init_std": float("inf")}, "`init_std`"),
        ({"only": "1"}, "`module` must have a layer to convert"),
        ({"exclude": "*"}, "`module` must have a layer to convert"),
        ({"only": []}, "`module` must have a layer to convert"),
    ],
)
def test_bad_arguments(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_bayesian(build("mlp")[0], **options)


def test_bad_networks() -> None:
    with pytest.raises(ValueError, match="`module` must have a layer to convert, but Sequential has none of Linear"):
        to_bayesian(nn.Sequential(nn.ReLU(), nn.Flatten()))
    with pytest.raises(ValueError, match=r"`module` must be a torch.nn.Module, but got function"):
        to_bayesian(lambda x: x)
    with pytest.raises(ValueError, match="`fraction`"):
        Relative(0.0)
    with pytest.raises(ValueError, match="`floor`"):
        Relative(0.1, floor=0.0)


def test_a_failed_conversion_leaves_the_network_alone() -> None:
    net = made(lambda: nn.Sequential(nn.Linear(5, 5), Scaled()))
    with pytest.raises(ValueError, match="cannot be made Bayesian"):
        to_bayesian(net)
    assert isinstance(net[0], nn.Linear)
    assert kl_divergence(to_bayesian(net, exclude="*.scale")) > 0


# --- weights that are computed from other parameters ---

NORMALISED = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "old weight_norm": nn.utils.weight_norm,
    "old spectral_norm": nn.utils.spectral_norm,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize("kind", ["linear", "conv"])
@pytest.mark.parametrize("name", NORMALISED)
def test_computed_weights_are_refused_by_name_and_can_be_excluded(name: str, kind: str) -> None:
    def make() -> nn.Module:
        first = nn.Linear(5, 4) if kind == "linear" else nn.Conv1d(5, 4, 1)
        return Chain(NORMALISED[name](first.double()), nn.Linear(4, 3))

    chain = made(make).eval()
    inputs = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(3, 5, *[1] * (kind == "conv"))
    with pytest.raises(ValueError, match=r"weights are computed from other parameters, 'first' \(.*`exclude`"):
        to_bayesian(chain)
    bnn = to_bayesian(chain, exclude="first").eval()
    assert converted(bnn) == ["head"]
    expected = chain(inputs)
    torch.testing.assert_close(bnn(inputs), expected, rtol=0, atol=1e-12)
    logits = forward_samples(bnn, inputs, 2, generator=torch.Generator().manual_seed(0))
    assert logits.shape == (2, 3, 3)
    logits.sum().backward()
    torch.testing.assert_close(mean_network(bnn).eval()(inputs), expected, rtol=0, atol=1e-12)


class Chain(nn.Module):
    def __init__(self, first: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.first, self.head = first, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x).flatten(1))


def test_computed_weights_inside_attention_are_refused() -> None:
    def make() -> nn.Module:
        attention = nn.MultiheadAttention(4, 2)
        parametrizations.weight_norm(attention.out_proj)
        return nn.Sequential(attention)

    with pytest.raises(ValueError, match=r"computed from other parameters, '0' \("):
        to_bayesian(made(make))


def test_what_is_frozen_stays_frozen() -> None:
    with torch.random.fork_rng():
        net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    net[0].weight.requires_grad_(False)
    trained = {name: value.requires_grad for name, value in to_bayesian(net).named_parameters()}
    assert [name for name, learns in trained.items() if not learns] == ["0.posteriors.0.mean", "0.posteriors.0.rho"]


def test_a_network_must_answer_with_a_tensor() -> None:
    class Pair(nn.Linear):
        def forward(self, input: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return super().forward(input), input

    with torch.random.fork_rng():
        bnn = to_bayesian(nn.Sequential(Pair(4, 2)), exclude="0.bias")
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(ValueError, match="must return one tensor of logits, but returned tuple"):
        forward_samples(bnn, torch.zeros(3, 4), 1, generator=generator)

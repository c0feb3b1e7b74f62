"""The networks: shapes, sizes counted by hand, initial weights from the generator alone, errors, compilation."""

import itertools
import math

import pytest
import torch
from torch import nn

from selbo.models import MLP, VGG11, ConvNet, FilterResponseNorm, LeNet, ResNet20

SMALL = {
    "mlp": (lambda **kwargs: MLP((12, 7, 5, 3), **kwargs), (12,), 3),
    "mlp, one layer": (lambda **kwargs: MLP((6, 4), **kwargs), (2, 3), 4),
    "mlp, dropout": (lambda **kwargs: MLP((12, 7, 5, 3), dropout=0.3, **kwargs), (3, 2, 2), 3),
    "lenet": (LeNet, (1, 28, 28), 2),
    "lenet, 5 classes": (lambda **kwargs: LeNet(5, **kwargs), (1, 28, 28), 5),
    "convnet": (ConvNet, (1, 28, 28), 2),
    "convnet, 5 classes": (lambda **kwargs: ConvNet(5, **kwargs), (1, 28, 28), 5),
    "resnet20": (lambda **kwargs: ResNet20(width=0.25, **kwargs), (3, 32, 32), 10),
    "convnet, padded": (lambda **kwargs: ConvNet(padded=True, **kwargs), (1, 28, 28), 2),
    "convnet, narrow": (lambda **kwargs: ConvNet(width=1 / 32, **kwargs), (1, 28, 28), 2),
}
ALL = {
    **SMALL,
    "vgg11": (lambda **kwargs: VGG11(width=0.25, **kwargs), (3, 32, 32), 10),
}
"""The whole of VGG11 has 28 million weights: tests of its sizes and of its first weights build that one."""


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(batch, shape, seed=0):
    return torch.randn(batch, *shape, generator=generator(seed))


@pytest.fixture(params=SMALL.values(), ids=SMALL.keys())
def small(request):
    return request.param


@pytest.fixture(params=ALL.values(), ids=ALL.keys())
def case(request):
    return request.param


@pytest.fixture(scope="module")
def vgg():
    """One VGG11 for the tests that only look at it: it has 28 million numbers to draw."""
    return VGG11(generator=generator())


def draws_from_global_state():
    """Dropout, and a network without a generator, draw from torch's global state: put it back afterwards."""
    return torch.random.fork_rng(devices=[])


def weights(*widths):
    """Weights and biases of a chain of linear layers."""
    return sum((a + 1) * b for a, b in itertools.pairwise(widths))


def kernels(size, *channels):
    """Weights and biases of a chain of convolutions."""
    return sum((size * size * a + 1) * b for a, b in itertools.pairwise(channels))


# --- shapes and sizes ---


def test_logits_have_shape_batch_by_classes_in_training_and_evaluation(case):
    build, shape, num_classes = case
    net = build(generator=generator())
    inputs = images(2, shape)
    for training in (True, False):
        net.train(training)
        with draws_from_global_state(), torch.no_grad():
            logits = net(inputs)
        assert logits.shape == (2, num_classes)
        assert logits.isfinite().all()
        assert (logits.exp().sum(-1) - 1).abs().min() > 1e-3  # log-softmax is not applied


@pytest.mark.parametrize(
    ("net", "count"),
    [
        (lambda: MLP((768, 128, 2)), 98_690),  # 768*128 + 128 + 128*2 + 2
        (lambda: MLP((12, 7, 5, 3)), 91 + 40 + 18),
        (LeNet, 43_746),  # 156 + 2_416 + 30_840 + 10_164 + 170
        (lambda: LeNet(10), 44_426),  # 850 in the last layer
        (ConvNet, 234_034),  # 160 + 2_320 + 9_280 + 2*36_928, 448 of BatchNorm, 131_200 + 16_512 + 258
        (lambda: ConvNet(5), 234_421),
        (lambda: ConvNet(width=1 / 32), 294),  # channels 1, 1, 2, 2, 2: 116, 16 of BatchNorm, 132 + 20 + 10
        (VGG11, 28_149_514),  # 9_220_480, 5_504 of BatchNorm, 2_101_248 + 16_781_312 + 40_970
        (ResNet20, 273_066),  # 448 + 13_920 + 50_880 + 544 + 203_136 + 2_112, 1_376 of normalisation, 650
    ],
    ids=["sst", "mlp", "lenet", "lenet, 10", "convnet", "convnet, 5", "convnet, narrow", "vgg11", "resnet20"],
)
def test_the_number_of_parameters_is_the_one_counted_by_hand(net, count):
    with torch.device("meta"):  # nothing is drawn, nothing is stored
        assert sum(parameter.numel() for parameter in net().parameters()) == count


def test_the_counts_follow_from_the_layers():
    assert weights(768, 128, 2) == 98_690
    assert kernels(5, 1, 6, 16) + weights(16 * 4 * 4, 120, 84, 2) == 43_746
    convnet = (16, 16, 64, 64, 64)
    assert kernels(3, 1, *convnet) + 2 * sum(convnet) + weights(64 * 4 * 4, 128, 128, 2) == 234_034
    vgg11 = (64, 128, 256, 256, 512, 512, 512, 512)
    without_norm = kernels(3, 3, *vgg11) + weights(512, 4096, 4096, 10)
    assert without_norm == 28_144_010  # the 28.14 million weights of the paper's network
    assert without_norm + 2 * sum(vgg11) == 28_149_514
    stages = [16] * 6, [16] + [32] * 6, [32] + [64] * 6
    convolutions = kernels(3, 3, 16) + sum(kernels(3, *stage) for stage in ([16, *stages[0]], *stages[1:]))
    assert convolutions + kernels(1, 16, 32) + kernels(1, 32, 64) == 271_040
    assert 271_040 + 2 * (16 + 6 * (16 + 32 + 64)) + weights(64, 10) == 273_066


def test_convolutions_of_the_image_networks(vgg):
    def channels(net):
        convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
        return [(c.out_channels, *c.kernel_size, *c.padding) for c in convolutions]

    assert channels(LeNet(generator=generator())) == [(6, 5, 5, 0, 0), (16, 5, 5, 0, 0)]
    authors = [(16, 0), (16, 0), (64, 0), (64, 0), (64, 1)]
    assert channels(ConvNet(generator=generator())) == [(c, 3, 3, p, p) for c, p in authors]
    assert channels(ConvNet(padded=True, generator=generator())) == [(c, 3, 3, 1, 1) for c, _ in authors]
    assert channels(vgg) == [(c, 3, 3, 1, 1) for c in (64, 128, 256, 256, 512, 512, 512, 512)]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("lenet", [24, 12, 8, 4]),
        ("convnet", [26, 24, 12, 10, 8, 8, 4]),
        ("convnet, padded", [28, 28, 14, 14, 14, 7, 7, 4]),
        ("vgg11", []),
    ],
)
def test_maps_shrink_as_documented(name, sizes, vgg):
    build, shape, _ = ALL[name]
    net = vgg if name == "vgg11" else build(generator=generator())
    net.eval()
    seen = []
    maps = images(2, shape)
    with torch.no_grad():
        for layer in net.features:
            maps = layer(maps)
            if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
                seen.append(maps.shape[-1])
    assert seen == (sizes or [32, 16, 16, 8, 8, 8, 4, 4, 4, 2, 2, 2, 1])


def test_padding_changes_no_weight_but_the_answer():
    ours, padded = ConvNet(generator=generator()).eval(), ConvNet(padded=True, generator=generator()).eval()
    for one, other in zip(ours.state_dict().values(), padded.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    inputs = images(3, (1, 28, 28))
    assert (ours(inputs) - padded(inputs)).abs().max() > 1e-3


def test_every_convolution_of_convnet_and_vgg_is_normalised(vgg):
    for net in (ConvNet(generator=generator()), vgg):
        layers = list(net.features)
        for i, layer in enumerate(layers):
            if isinstance(layer, nn.Conv2d):
                assert isinstance(layers[i + 1], nn.BatchNorm2d)
                assert layers[i + 1].num_features == layer.out_channels
                assert isinstance(layers[i + 2], nn.ReLU)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in LeNet(generator=generator()).modules())


def test_batch_norm_learns_in_training_only():
    net = ConvNet(generator=generator())
    inputs = 3 + images(4, (1, 28, 28))
    net.eval()(inputs)
    assert all(m.num_batches_tracked == 0 for m in net.modules() if isinstance(m, nn.BatchNorm2d))
    net.train()(inputs)
    assert all(m.num_batches_tracked == 1 for m in net.modules() if isinstance(m, nn.BatchNorm2d))


def test_dropout_stands_behind_every_hidden_layer_of_a_head(vgg):
    kinds = [nn.Linear, nn.ReLU, nn.Dropout]
    assert [type(m) for m in MLP((4, 3, 3, 2), dropout=0.2, generator=generator()).layers] == 2 * kinds + [nn.Linear]
    assert [type(m) for m in MLP((4, 3, 2), generator=generator()).layers] == [nn.Linear, nn.ReLU, nn.Linear]
    assert [type(m) for m in vgg.head] == 2 * kinds + [nn.Linear]
    assert [m.p for m in vgg.head if isinstance(m, nn.Dropout)] == [0.5, 0.5]


# --- values ---


def test_mlp_is_the_formula():
    net = MLP((6, 4, 3), generator=generator())
    inputs = images(5, (2, 3))
    a, b, c, d = net.parameters()
    expected = (inputs.reshape(5, 6) @ a.T + b).clamp(min=0) @ c.T + d
    torch.testing.assert_close(net(inputs), expected)


def test_filter_response_norm_is_the_formula(seed):
    layer, inputs = FilterResponseNorm(3, epsilon=0.1), images(2, (3, 4, 5), seed)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, -2.0, 0.5]))
        layer.bias.copy_(torch.tensor([0.0, 1.0, 3.0]))
    found = layer(inputs)
    for image, channel in itertools.product(range(2), range(3)):
        pixels = inputs[image, channel].flatten().tolist()
        root = math.sqrt(sum(pixel**2 for pixel in pixels) / 20 + 0.1)
        expected = [layer.weight[channel].item() * pixel / root + layer.bias[channel].item() for pixel in pixels]
        torch.testing.assert_close(found[image, channel].flatten(), torch.tensor(expected))
    assert layer(inputs.bfloat16()).dtype == torch.bfloat16


def test_residual_blocks_add_their_input():
    """With the last normalisation of every block at zero, blocks are shortcuts and SiLU alone."""
    net, inputs = ResNet20(width=0.25, generator=generator()).eval(), images(2, (3, 32, 32))
    with torch.no_grad():
        expected = nn.functional.silu(net.norm(net.first(inputs)))
        for block in net.blocks:
            block.norm_second.weight.zero_()
            expected = nn.functional.silu(block.shortcut(expected))
        assert expected.shape == (2, 16, 8, 8)
        torch.testing.assert_close(net(inputs), net.head(expected.mean((2, 3))))


def test_an_input_does_not_depend_on_its_batch_in_evaluation(small):
    build, shape, _ = small
    net = build(generator=generator()).eval()
    inputs = images(3, shape)
    with torch.no_grad():
        torch.testing.assert_close(net(inputs)[1:2], net(inputs[1:2]), rtol=1e-4, atol=1e-5)


def test_gradients_reach_every_parameter(case):
    build, shape, num_classes = case
    net = build(generator=generator())
    labels = torch.arange(4) % num_classes
    with draws_from_global_state():
        torch.manual_seed(0)  # of dropout
        nn.functional.cross_entropy(net(images(4, shape)), labels).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


# --- initial weights ---


def test_the_generator_alone_decides_the_weights(case):
    build, _, _ = case
    before = torch.get_rng_state()
    first, again, other = (build(generator=generator(seed)).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in first.items():
        assert torch.equal(value, again[name]), name
    drawn = [name for name, value in first.items() if not torch.equal(value, other[name])]
    assert drawn
    assert all("weight" in name or "bias" in name for name in drawn)


def test_without_a_generator_the_global_state_decides(small):
    build, _, _ = small
    with draws_from_global_state():
        torch.manual_seed(3)
        plain = build().state_dict()
        other = build().state_dict()
    given = build(generator=generator(3)).state_dict()
    assert all(torch.equal(value, given[name]) for name, value in plain.items())
    assert any(not torch.equal(value, other[name]) for name, value in plain.items())


def test_small_networks_start_as_torch_starts_its_layers():
    with draws_from_global_state():
        torch.manual_seed(5)
        plain = [
            nn.Conv2d(1, 6, 5),
            nn.Conv2d(6, 16, 5),
            nn.Linear(256, 120),
            nn.Linear(120, 84),
            nn.Linear(84, 3),
        ]
    expected = [parameter for layer in plain for parameter in layer.parameters()]
    actual = list(LeNet(3, generator=generator(5)).parameters())
    torch.testing.assert_close(actual, expected)


def test_batch_norm_starts_as_the_identity(vgg):
    for net in (ConvNet(generator=generator()), vgg):
        for layer in net.modules():
            if isinstance(layer, nn.BatchNorm2d):
                assert (layer.weight == 1).all()
                assert (layer.bias == 0).all()


@pytest.mark.slow
def test_vgg_starts_from_kaiming_fan_out_and_small_linear_weights(seed):
    net = VGG11(generator=generator(seed))
    layers = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == 11
    for layer in layers:
        assert (layer.bias == 0).all()
        fan_out = 9 * layer.weight.shape[0]
        std = math.sqrt(2 / fan_out) if isinstance(layer, nn.Conv2d) else 0.01
        standard = layer.weight.detach() / std
        n = standard.numel()
        mean, second, fourth = (standard.pow(k).mean(dtype=torch.float64).item() for k in (1, 2, 4))
        assert abs(mean) * math.sqrt(n) < 5
        assert abs(second - 1) * math.sqrt(n / 2) < 5
        if n > 10_000:  # the mean of fourth powers is itself close to normal only for many
            assert abs(fourth - 3) * math.sqrt(n / 96) < 5


# --- use ---


def test_weights_travel_as_a_state_dict(small):
    build, shape, _ = small
    source, target = (build(generator=generator(seed)) for seed in (1, 2))
    with draws_from_global_state(), torch.no_grad():
        source(images(4, shape))  # moves the running statistics
    target.load_state_dict(source.state_dict())
    inputs = images(2, shape)
    with torch.no_grad():
        assert torch.equal(target.eval()(inputs), source.eval()(inputs))


def test_double_precision(small):
    build, shape, _ = small
    net = build(generator=generator()).eval()
    inputs = images(2, shape)
    expected = net(inputs)
    torch.testing.assert_close(net.double()(inputs.double()).float(), expected, rtol=1e-4, atol=1e-5)


def test_default_device_is_respected():
    with torch.device("meta"):
        nets = [MLP((3, 2)), LeNet(), ConvNet(), VGG11(), ResNet20()]
    assert all(tensor.is_meta for net in nets for tensor in net.state_dict().values())


# --- errors ---


@pytest.mark.parametrize("shape", [(2, 28, 28), (1, 28, 28), (2, 3, 28, 28), (2, 1, 32, 32), (2, 1, 28, 27), (784,)])
@pytest.mark.parametrize("build", [LeNet, ConvNet])
def test_grey_images_of_the_wrong_shape_are_refused(build, shape):
    net = build(generator=generator())
    with pytest.raises(ValueError, match=r"`inputs` must have shape \(batch, 1, 28, 28\), but got \(") as error:
        net(torch.zeros(shape))
    assert str(shape) in str(error.value)


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 1, 32, 32), (2, 3, 28, 28), (2, 32, 32, 3), (2, 3, 32, 32, 1)])
def test_colour_images_of_the_wrong_shape_are_refused(vgg, shape):
    for net in (vgg, ResNet20(width=0.1, generator=generator())):
        with pytest.raises(ValueError, match=r"`inputs` must have shape \(batch, 3, 32, 32\), but got \(") as error:
            net(torch.zeros(shape))
        assert str(shape) in str(error.value)


@pytest.mark.parametrize("shape", [(6,), (2, 5), (2, 7), (6, 2), (2, 2, 2), ()])
@pytest.mark.parametrize("width", [6, 1])
def test_vectors_of_the_wrong_shape_are_refused(shape, width):
    net = MLP((width, 2), generator=generator())
    with pytest.raises(ValueError, match=rf"`inputs` must have shape \(batch, {width}\), .* but got shape \("):
        net(torch.zeros(shape))


@pytest.mark.parametrize("build", [LeNet, ConvNet, VGG11, ResNet20])
@pytest.mark.parametrize("num_classes", [1, 0, -2, 2.0, True, "2", None])
def test_bad_numbers_of_classes_are_refused(build, num_classes):
    with pytest.raises(ValueError, match=r"`num_classes` must be a whole number of at least 2, but got"):
        build(num_classes)


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((), r"`widths` must hold at least 2 numbers, .* but got \(\)"),
        ((3,), r"`widths` must hold at least 2 numbers, .* but got \(3,\)"),
        (3, r"`widths` must hold at least 2 numbers, .* but got 3"),
        ((3, 0, 2), r"`widths\[1\]` must be a whole number of at least 1, but got 0"),
        ((3, 4, 2.5), r"`widths\[2\]` must be a whole number of at least 1, but got 2.5"),
        ("32", r"`widths\[0\]` must be a whole number of at least 1, but got '3'"),
    ],
)
def test_bad_widths_are_refused(widths, message):
    with pytest.raises(ValueError, match=message):
        MLP(widths)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 2, math.nan, "0.5", None])
def test_bad_dropout_is_refused(dropout):
    with pytest.raises(
        ValueError, match=r"`dropout` must (lie strictly between 0 and 1, or be 0 for none|be a number)"
    ):
        MLP((3, 4, 2), dropout=dropout)

"""MNIST-C made by us: what holds for every corruption, and one exact property or more of each."""

from __future__ import annotations

import math

import pytest
import torch

from selbo_lab.data.corruptions.mnist import (
    DEFAULT_SEVERITIES,
    MNIST_CHUNK,
    MNIST_CORRUPTIONS,
    _swap_pixels,
    corrupt_mnist,
)

PUBLISHED = {
    "shot_noise": 5,
    "impulse_noise": 4,
    "glass_blur": 1,
    "motion_blur": 1,
    "shear": 2,
    "scale": 3,
    "rotate": 2,
    "brightness": 5,
    "translate": 3,
    "stripe": None,
    "fog": 5,
    "spatter": 4,
    "dotted_line": None,
    "zigzag": None,
    "canny_edges": None,
}
"""Names in the order of the published program, and the severity of each."""

WITHOUT_CHANCE = {"scale", "brightness", "stripe", "canny_edges"}
GRADED = [name for name, severity in PUBLISHED.items() if severity is not None]

NOT_WORSE = {("fog", 4), ("spatter", 4)}
"""Severities that differ in kind from the one before: finer fog of the same amount, and spatter with a soft outline."""


def strokes(count: int = 60) -> torch.Tensor:
    """Bars and rings with soft edges, of several widths, places and directions; about as bright as digits."""
    line = torch.arange(28.0) - 13.5
    down, right = line[:, None], line[None, :]
    pictures = []
    for k in range(count):
        angle, width, shift = k * 0.7, 1.0 + k % 3 * 0.4, (k % 5 - 2) * 1.2
        across = (right - shift) * math.cos(angle) + down * math.sin(angle)
        along = down * math.cos(angle) - (right - shift) * math.sin(angle)
        bar = (width + 0.5 - across.abs()).clamp(0, 1) * (9 - along.abs()).clamp(0, 1)
        ring = (width + 0.5 - (torch.hypot(right - shift, down) - 6).abs()).clamp(0, 1)
        pictures.append(bar if k % 2 else ring)
    return (torch.stack(pictures)[:, None] * 255).byte()


def plain(value: int, count: int = 1) -> torch.Tensor:
    return torch.full((count, 1, 28, 28), value, dtype=torch.uint8)


def upright_bar(count: int) -> torch.Tensor:
    images = plain(0, count)
    images[:, :, 5:23, 13:15] = 255
    return images


def psnr(images: torch.Tensor, corrupted: torch.Tensor) -> float:
    return -10 * ((images.double() - corrupted.double()) / 255).square().mean().log10().item()


def middle_of_rows(images: torch.Tensor) -> torch.Tensor:
    """Centre of mass of each row, from the centre of the image: (N, H)."""
    weights = images[:, 0].double()
    return (weights * (torch.arange(28) - 13.5)).sum(-1) / weights.sum(-1)


def test_names_and_severities_are_the_published_ones() -> None:
    assert list(MNIST_CORRUPTIONS) == list(PUBLISHED)
    assert DEFAULT_SEVERITIES == PUBLISHED


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_seed_decides_every_pixel(name: str, seed: int) -> None:
    images = strokes(32)  # rotations, say, are one of two: a few images may agree by chance
    before = images.clone()
    corrupted = corrupt_mnist(images, name, seed=seed)
    assert torch.equal(images, before), "the images given are left alone"
    assert (corrupted.shape, corrupted.dtype) == (images.shape, torch.uint8)
    assert not torch.equal(corrupted, images)
    assert torch.equal(corrupted, corrupt_mnist(images, name, seed=seed))
    assert torch.equal(corrupted, corrupt_mnist(images, name, seed=seed + 1)) == (name in WITHOUT_CHANCE)
    assert torch.equal(corrupted, corrupt_mnist(images, name, seed=seed, severity=PUBLISHED[name])), (
        "the default severity"
    )


@pytest.mark.parametrize("name", GRADED)
def test_distortion_grows_with_severity(name: str, seed: int) -> None:
    images = strokes()
    values = [psnr(images, corrupt_mnist(images, name, seed=seed, severity=severity)) for severity in range(1, 6)]
    steps = {severity: values[severity - 1] - values[severity - 2] for severity in range(2, 6)}
    worse = {severity: step for severity, step in steps.items() if (name, severity) not in NOT_WORSE}
    assert max(worse.values()) < 0, values
    assert values[4] < values[0] - 1, values


def test_chunks_differ_and_do_not_depend_on_what_follows(seed: int) -> None:
    images = plain(128, MNIST_CHUNK + 3)
    corrupted = corrupt_mnist(images, "impulse_noise", seed=seed)
    assert torch.equal(corrupted[:MNIST_CHUNK], corrupt_mnist(images[:MNIST_CHUNK], "impulse_noise", seed=seed))
    assert not torch.equal(corrupted[MNIST_CHUNK:], corrupted[:3])
    assert (corrupted[MNIST_CHUNK:] != 128).any()


@pytest.mark.parametrize("name", PUBLISHED)
def test_no_images_give_no_images(name: str) -> None:
    assert corrupt_mnist(plain(0, 0), name, seed=0).shape == (0, 1, 28, 28)


def test_shot_noise_has_the_mean_and_variance_of_photon_counts(seed: int) -> None:
    photons, value = 12, 51  # severity 3; a fifth of white, so that hardly a count is cut off
    noise = corrupt_mnist(plain(value, 100), "shot_noise", seed=seed, severity=3).double() / 255
    count, rate = noise.numel(), photons * value / 255
    assert abs(noise.mean().item() - value / 255) < 5 * math.sqrt(rate / count) / photons
    variance_error = math.sqrt((2 * rate**2 + rate) / count)  # fourth central moment: 3 rate² + rate
    assert abs(noise.var().item() * photons**2 - rate) < 5 * variance_error
    assert corrupt_mnist(plain(0), "shot_noise", seed=seed).max() == 0


def test_impulse_noise_changes_its_share_of_pixels_half_to_white(seed: int) -> None:
    noisy = corrupt_mnist(plain(128, 100), "impulse_noise", seed=seed)
    count = noisy.numel()
    for value in (0, 255):
        share = (noisy == value).double().mean().item()
        assert abs(share - 0.085) < 5 * math.sqrt(0.085 / count)
    assert set(noisy.unique().tolist()) == {0, 128, 255}


def test_glass_blurs_columns_and_leaves_plain_images_alone(seed: int) -> None:
    assert corrupt_mnist(plain(200), "glass_blur", seed=seed).unique().tolist() == [200]
    edge = plain(0)
    edge[..., :1] = 255  # the first column is out of reach of the swaps, and not blurred sideways
    assert torch.equal(corrupt_mnist(edge, "glass_blur", seed=seed), edge)
    lid = plain(0)
    lid[..., :1, :] = 255
    assert 0 < corrupt_mnist(lid, "glass_blur", seed=seed)[0, 0, 1, 0] < 255  # but downwards


@pytest.mark.parametrize(("distance", "iterations"), [(1, 2), (3, 1)])
def test_pixels_are_swapped_in_turn(distance: int, iterations: int, seed: int) -> None:
    images = torch.arange(2 * 784.0).reshape(2, 28, 28)
    swapped = _swap_pixels(images, distance, iterations, torch.Generator().manual_seed(seed))
    again, expected = torch.Generator().manual_seed(seed), images.clone()
    side = range(28 - distance, distance, -1)
    for _ in range(iterations):
        shape = (2, len(side) ** 2, 2)
        down, right = torch.randint(-distance, distance, shape, generator=again)
        coins = torch.randint(2, shape[1:], generator=again)
        for turn, (row, column) in enumerate((row, column) for row in side for column in side):
            for image in range(2):
                if coins[turn, image]:
                    there = (row + int(down[turn, image]), column + int(right[turn, image]))
                    here = expected[image, row, column].clone()
                    expected[image, row, column] = expected[image][there]
                    expected[image][there] = here
    assert torch.equal(swapped, expected)
    assert not torch.equal(swapped, images)


def test_motion_smears_to_the_left_within_45_degrees(seed: int) -> None:
    dot = plain(0, 200)
    dot[:, :, 14, 24] = 255
    smeared = corrupt_mnist(dot, "motion_blur", seed=seed)[:, 0].double()
    assert smeared[:, :, 25:].max() == 0
    rows, columns = torch.meshgrid(torch.arange(28) - 14.0, 24.0 - torch.arange(28), indexing="ij")
    assert smeared[:, rows.abs() > columns + 0.5].max() == 0
    torch.testing.assert_close(smeared.sum((1, 2)), torch.full((200,), 255.0).double(), atol=6, rtol=0)  # rounding
    tilt = (smeared * rows).sum((1, 2)) / (smeared * columns).sum((1, 2))
    assert tilt.min() < -0.7
    assert tilt.max() > 0.7
    torch.testing.assert_close(smeared[:, 14, 24], torch.full((200,), 61.0).double(), atol=1.1, rtol=0)
    # 61: 255 / sum of exp(-i² / 18), i from 0 to 20; one more where rounding puts the next step on the same pixel


@pytest.mark.parametrize(("name", "slope"), [("shear", math.sin(0.4)), ("rotate", math.tan(0.4))])
def test_an_upright_bar_leans_by_the_angle_to_either_side(name: str, slope: float, seed: int) -> None:
    leaning = corrupt_mnist(upright_bar(64), name, seed=seed)
    middle = middle_of_rows(leaning)[:, 8:20]
    slopes = (middle[:, -1] - middle[:, 0]) / 11
    torch.testing.assert_close(slopes.abs(), torch.full((64,), slope).double(), atol=0.02, rtol=0)
    assert {True, False} == set((slopes > 0).tolist())
    growth = leaning.double().sum((1, 2, 3)) / upright_bar(1).double().sum()
    expected = 1 / math.cos(0.4) if name == "shear" else 1.0
    torch.testing.assert_close(growth, torch.full((64,), expected).double(), atol=0.02, rtol=0)


@pytest.mark.parametrize(("severity", "size"), [(1, 0.9), (2, 0.8), (3, 0.7), (4, 0.6), (5, 0.5)])
def test_scale_shrinks_towards_the_centre(severity: int, size: float) -> None:
    square = plain(0)
    square[..., 4:24, 4:24] = 255
    small = corrupt_mnist(square, "scale", seed=0, severity=severity)
    assert small.double().sum().item() == pytest.approx(255 * (20 * size) ** 2, rel=0.03)
    assert torch.equal(small, small.flip(-1))
    assert torch.equal(small, small.flip(-2))
    assert small[..., 14, 14] == 255


def test_translate_moves_whole_pixels_along_both_axes(seed: int) -> None:
    image = torch.randint(256, (1, 1, 28, 28), generator=torch.Generator().manual_seed(seed)).byte()
    moved = corrupt_mnist(image.repeat(64, 1, 1, 1), "translate", seed=seed)
    framed = torch.nn.functional.pad(image, (3, 3, 3, 3))
    expected = {(i, j): framed[0, 0, i : i + 28, j : j + 28] for i in (0, 6) for j in (0, 6)}
    found = [way for result in moved[:, 0] for way, picture in expected.items() if torch.equal(result, picture)]
    assert len(found) == 64
    assert set(found) == set(expected)


def test_brightness_adds_and_stripe_inverts_both_sides() -> None:
    images = torch.arange(256).byte().repeat(4)[:784].reshape(1, 1, 28, 28)
    assert torch.equal(
        corrupt_mnist(images, "brightness", seed=0, severity=2).long(), (images.long() + 51).clamp(max=255)
    )
    assert corrupt_mnist(plain(0), "brightness", seed=0).float().mean() == pytest.approx(127.5, abs=0.5)
    striped = corrupt_mnist(images, "stripe", seed=0)
    assert torch.equal(striped[..., 7:21], images[..., 7:21])
    assert torch.equal(striped[..., :7], 255 - images[..., :7])
    assert torch.equal(striped[..., 21:], 255 - images[..., 21:])


def test_fog_is_added_and_the_whole_made_as_bright_as_before(seed: int) -> None:
    corner = plain(0, 4)
    corner[..., 0, 0] = 255
    digit = corner.clone()
    digit[..., 10:20, 10:20] = 255
    fog, foggy = (corrupt_mnist(images, "fog", seed=seed).long() for images in (corner, digit))
    rise = foggy - fog
    assert set(rise[..., 10:20, 10:20].unique().tolist()) <= {63, 64}, "a quarter: fog of amount 3 beside white of 1"
    assert rise.sum() == rise[..., 10:20, 10:20].sum()
    assert fog.flatten(1)[:, 1:].max() <= 192, "three quarters where there is only fog"
    assert len(fog[..., 5, 5].unique()) > 1, "each image has fog of its own"
    dark = corrupt_mnist(corner // 2, "fog", seed=seed)
    assert dark.max() <= 128, "fog over a dark image is dark"
    assert corrupt_mnist(plain(0), "fog", seed=seed).max() == 0


def test_spatter_is_grey_and_opaque(seed: int) -> None:
    on_black, on_white = (corrupt_mnist(plain(value, 20), "spatter", seed=seed).long() for value in (0, 255))
    mud = on_black > 0
    assert 0.05 < mud.double().mean() < 0.45
    assert on_black[mud].min() >= 50  # 0.8 x 63
    assert 60 < on_black.max() <= 63
    assert torch.equal(mud, on_white < 255)
    assert 63 <= on_white.min() < 70
    assert on_white[mud].max() <= 102  # 0.8 x 63 + 0.2 x 255


@pytest.mark.parametrize("name", ["dotted_line", "zigzag"])
def test_lines_only_add_light(name: str, seed: int) -> None:
    images = strokes()
    drawn, alone = (
        corrupt_mnist(images, name, seed=seed).long(),
        corrupt_mnist(torch.zeros_like(images), name, seed=seed).long(),
    )
    assert torch.equal(drawn, (images.long() + alone).clamp(max=255))


@pytest.mark.parametrize(
    ("images", "name", "severity", "message"),
    [
        (plain(0), "identity", None, r"`name` must be one of .*but got 'identity'"),
        (plain(0)[0], "fog", None, r"`images` must be bytes of shape \(N, 1, 28, 28\), but got \(1, 28, 28\)"),
        (plain(0).float(), "fog", None, r"but got \(1, 1, 28, 28\), torch.float32"),
        (torch.zeros(1, 3, 32, 32).byte(), "fog", None, r"but got \(1, 3, 32, 32\)"),
        (plain(0), "fog", 6, "`severity` must be a whole number from 1 to 5, but got 6"),
        (plain(0), "fog", 0, "`severity` must be a whole number of at least 1, but got 0"),
        (plain(0), "stripe", 1, "`severity` must be None for stripe, which has one strength only, but got 1"),
    ],
)
def test_bad_input_is_refused(images: torch.Tensor, name: str, severity: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corrupt_mnist(images, name, seed=0, severity=severity)

"""CIFAR-10-C: what every corruption has in common, and what each one does."""

from __future__ import annotations

import colorsys
import io

import numpy as np
import pytest
import torch
from torch import Tensor
from unit.data.conftest import RealData

from selbo.random import generator_for
from selbo_lab.data import load_set
from selbo_lab.data.cifar_files import CIFAR10
from selbo_lab.data.corruptions import cifar, cifar_blur, cifar_digital, cifar_noise, cifar_weather, frost, jpeg
from selbo_lab.data.corruptions.filters import clipped_zoom, gaussian_filter, plasma_fractal

COUNT = 120
"""Images of a test: less than a chunk, so that the rest of it is padding."""

FALLS_BACK = {
    "glass_blur": {(1, 2), (2, 3), (4, 5)},
    "frost": {(2, 3), (3, 4), (4, 5)},
    "spatter": {(3, 4)},
    "elastic_transform": {(1, 2), (2, 3), (3, 4), (4, 5)},
    "saturate": {(2, 3)},
}
"""Where a higher severity is not farther from the clean image by its published values.

Glass blur: more blur hides the moved pixels, and only 4 moves them twice. Frost: the image is darkened while the ice is
as bright. Spatter: 4 has mud instead of water. Elastic transform: the affine move shrinks while local moves grow, which
count for less in PSNR. Saturate: 1 and 2 take colour away, 3 adds a little.
"""

SAME = {"motion_blur": {(3, 4)}}
"""Where the published values differ in a part without weight, so that distortions are equal but for chance."""


def natural(count: int, seed: int = 0) -> Tensor:
    """Patches of colour with edges, on smooth ground, with some detail."""
    generator = generator_for(seed, "natural")
    ground = plasma_fractal(3 * count, 32, 1.6, generator).reshape(count, 3, 32, 32)
    common = plasma_fractal(count, 32, 1.5, generator)[:, None]
    shapes = (plasma_fractal(count, 32, 2.0, generator)[:, None] > 0.5).float()
    colours = torch.rand(count, 3, 1, 1, generator=generator)
    pixels = 0.45 * common + 0.2 * ground + 0.35 * shapes * colours
    return (pixels * 255).to(torch.uint8)


def psnr(clean: Tensor, corrupted: Tensor) -> float:
    error = (clean.float() - corrupted.float()).square().mean((1, 2, 3))
    return (10 * torch.log10(255**2 / error.clamp_min(1e-2))).mean().item()


def check_distortion_grows(images: Tensor, name: str, seed: int) -> None:
    values = [psnr(images, cifar.corrupt_cifar(images, name, severity, seed=seed)) for severity in cifar.SEVERITIES]
    for low, high in zip(cifar.SEVERITIES, cifar.SEVERITIES[1:], strict=False):
        step = values[low - 1] - values[high - 1]
        if (low, high) in SAME.get(name, ()):
            assert abs(step) < 1, (low, high, values)
        elif (low, high) not in FALLS_BACK.get(name, ()):
            assert step > 0, (low, high, values)
    assert min(values) > 8, values
    assert max(values) < 60, values


def grey(level: int, count: int = COUNT) -> Tensor:
    return torch.full((count, 3, 32, 32), level, dtype=torch.uint8)


# --- what all have in common ---


def test_the_names_are_those_of_the_published_files() -> None:
    assert len(set(cifar.CIFAR_CORRUPTIONS)) == 19
    assert set(cifar.CIFAR_CORRUPTIONS) == {*cifar.RANDOM, *cifar.FIXED}


@pytest.mark.parametrize("name", cifar.CIFAR_CORRUPTIONS)
def test_psnr_falls_with_severity(name: str, seed: int) -> None:
    check_distortion_grows(natural(COUNT, seed), name, seed)


@pytest.mark.parametrize("name", cifar.CIFAR_CORRUPTIONS)
def test_psnr_falls_with_severity_on_the_test_images(name: str, real_data: RealData) -> None:
    real_data.needs(CIFAR10)
    check_distortion_grows(load_set("cifar10", "test").inputs[:250], name, 0)


@pytest.mark.parametrize("name", cifar.CIFAR_CORRUPTIONS)
def test_the_seed_decides_and_later_images_do_not(name: str) -> None:
    images = natural(40)
    before = images.clone()
    found = cifar.corrupt_cifar(images, name, 3, seed=7)
    assert torch.equal(images, before)
    assert found.dtype == torch.uint8
    assert found.shape == images.shape
    assert torch.equal(cifar.corrupt_cifar(images[:13], name, 3, seed=7), found[:13])
    assert torch.equal(cifar.corrupt_cifar(images, name, 3, seed=8), found) == (name in cifar.FIXED)


@pytest.mark.parametrize("name", sorted(cifar.RANDOM))
def test_chunks_and_images_have_noise_of_their_own(name: str) -> None:
    same = natural(1).repeat(cifar.CIFAR_CHUNK + 2, 1, 1, 1)
    found = cifar.corrupt_cifar(same, name, 3, seed=0)
    assert len(found) == cifar.CIFAR_CHUNK + 2
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[cifar.CIFAR_CHUNK])


def test_no_images_stay_none() -> None:
    assert cifar.corrupt_cifar(grey(0, 0), "fog", 1, seed=0).shape == (0, 3, 32, 32)


@pytest.mark.parametrize(
    ("images", "name", "severity", "complaint"),
    [
        (grey(0, 1), "rain", 1, r"`name` must be one of \['brightness', .*\], but got 'rain'"),
        (grey(0, 1), "fog", 0, "`severity` must be a whole number from 1 to 5, but got 0"),
        (grey(0, 1), "fog", True, "`severity` must be a whole number from 1 to 5, but got True"),
        (grey(0, 1), "fog", 2.5, "`severity` must be a whole number from 1 to 5, but got 2.5"),
        (grey(0, 1).float(), "fog", 1, r"torch.float32 of shape \(1, 3, 32, 32\)"),
        (grey(0, 1)[0], "fog", 1, r"of shape \(N, 3, 32, 32\), but got torch.uint8 of shape \(3, 32, 32\)"),
        (np.zeros((1, 3, 32, 32), np.uint8), "fog", 1, "but got ndarray"),
    ],
)
def test_bad_input_is_refused(images: Tensor, name: str, severity: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        cifar.corrupt_cifar(images, name, severity, seed=0)


# --- noise ---


def floats(name: str, images: Tensor, severity: int, seed: int) -> Tensor:
    """Before clipping and rounding."""
    return cifar.RANDOM[name](images.float() / 255, severity, generator_for(seed, name))


@pytest.mark.parametrize("severity", cifar.SEVERITIES)
def test_noise_has_the_stated_spread(severity: int, seed: int) -> None:
    level = 102 / 255
    expected = {
        "gaussian_noise": cifar_noise.NOISE_STD[severity - 1],
        "speckle_noise": cifar_noise.SPECKLE_STD[severity - 1] * level,
        "shot_noise": (level / cifar_noise.PHOTONS[severity - 1]) ** 0.5,
    }
    for name, std in expected.items():
        found = floats(name, grey(102, 100), severity, seed)  # 307 200 values: a standard error of 0.13 %
        assert found.std().item() == pytest.approx(std, rel=0.01), name
        assert found.mean().item() == pytest.approx(level, abs=5 * std / 550), name


@pytest.mark.parametrize("severity", cifar.SEVERITIES)
def test_impulses_are_black_or_white_and_as_many_as_stated(severity: int, seed: int) -> None:
    found = floats("impulse_noise", grey(102, 200), severity, seed)
    share = cifar_noise.IMPULSE_SHARE[severity - 1]
    error = 5 * (share / found.numel()) ** 0.5
    assert (found == 0).float().mean().item() == pytest.approx(share / 2, abs=error)
    assert (found == 1).float().mean().item() == pytest.approx(share / 2, abs=error)
    assert found.unique().numel() == 3


# --- blur ---


@pytest.mark.parametrize("name", ["defocus_blur", "motion_blur", "zoom_blur", "gaussian_blur", "glass_blur"])
def test_blur_keeps_flat_images_and_the_mean(name: str) -> None:
    assert torch.equal(cifar.corrupt_cifar(grey(77, 3), name, 5, seed=0), grey(77, 3))
    images = natural(COUNT)
    found = cifar.corrupt_cifar(images, name, 5, seed=0)
    assert found.float().mean().item() == pytest.approx(images.float().mean().item(), abs=3)


@pytest.mark.parametrize("name", ["defocus_blur", "motion_blur", "zoom_blur", "gaussian_blur"])
def test_blur_takes_fine_detail_away(name: str) -> None:
    images = natural(COUNT)

    def detail(pixels: Tensor) -> float:
        values = pixels.float()
        return (values - gaussian_filter(values, 1.0)).square().mean().item()

    assert detail(cifar.corrupt_cifar(images, name, 5, seed=0)) < 0.6 * detail(images)


def test_zoom_blur_is_a_mean_over_factors() -> None:
    image = natural(2).float() / 255
    zoomed = [clipped_zoom(image, 1 + 0.01 * step) for step in range(cifar_blur.ZOOM_COUNT[1])]
    expected = torch.stack([image, *zoomed]).mean(0)
    assert torch.allclose(cifar_blur.zoom_blur(image, 2), expected, atol=1e-5)


def test_glass_takes_pixels_from_above_and_from_the_left() -> None:
    rows = torch.arange(32.0)[:, None].expand(1, 3, 32, 32) / 255
    found = (cifar_blur.glass_blur(rows, 1, generator_for(0, "glass")) * 255).round() - rows * 255
    assert set(found.unique().tolist()) == {-1.0, 0.0}
    assert found[..., :2, :].abs().sum() == 0


# --- weather ---


def test_snow_is_white_and_falls() -> None:
    images = grey(60)
    found = cifar.corrupt_cifar(images, "snow", 3, seed=0).float()
    assert (found >= 60).all()
    layer = found - found.amin((1, 2, 3), keepdim=True)
    down, across = ((layer.diff(dim=axis)).square().mean() for axis in (2, 3))
    assert down < 0.6 * across  # streaks


def test_frost_is_ice_over_a_weaker_image() -> None:
    textures = frost.textures()
    assert textures.shape == (5, 3, 256, 256)
    assert textures.float().mean((0, 2, 3)).diff().min() > 0  # bluish
    for severity, (_, weight) in enumerate(cifar_weather.FROST, 1):
        found = floats("frost", grey(0, 60), severity, 0)
        assert found.max().item() <= weight + 1e-6
        assert 0.3 * weight < found.mean().item() < 0.7 * weight
        assert (floats("frost", grey(255, 60), severity, 0) - found).mean().item() == pytest.approx(
            cifar_weather.FROST[severity - 1][0], abs=1e-5
        )


def test_fog_keeps_the_brightest_value_and_lowers_contrast() -> None:
    images = natural(COUNT)
    pixels = images.float() / 255
    found = floats("fog", images, 3, 0)
    brightest = pixels.amax((1, 2, 3))
    assert (found.amax((1, 2, 3)) <= brightest + 1e-6).all()
    thickness = cifar_weather.FOG[2][0]
    cloud = found * ((brightest + thickness) / brightest)[:, None, None, None] - pixels
    assert torch.allclose(cloud[:, 0], cloud[:, 2], atol=1e-5)  # grey
    assert cloud.amax((1, 2, 3)).tolist() == pytest.approx([thickness] * COUNT, abs=1e-5)


@pytest.mark.parametrize("severity", cifar.SEVERITIES)
def test_brightness_and_saturation_are_those_of_hsv(severity: int) -> None:
    pixels = natural(2).float() / 255
    pixels[0, :, 0, :4] = torch.tensor([[0.0, 0.5, 1.0, 0.0]] * 3)  # black, grey, white, and black but for blue
    pixels[0, 2, 0, 3] = 0.3
    brighter, saturated = cifar_weather.brightness(pixels, severity), cifar_digital.saturate(pixels, severity)
    factor, shift = cifar_digital.SATURATE[severity - 1]
    for row, column in ((0, 0), (0, 1), (0, 2), (0, 3), *((i, (7 * i) % 32) for i in range(1, 32))):
        hue, saturation, value = colorsys.rgb_to_hsv(*pixels[0, :, row, column].tolist())
        raised = min(value + cifar_weather.BRIGHTNESS[severity - 1], 1.0)
        expected = colorsys.hsv_to_rgb(hue, saturation, raised)
        assert brighter[0, :, row, column].tolist() == pytest.approx(expected, abs=1e-5)
        expected = colorsys.hsv_to_rgb(hue, min(saturation * factor + shift, 1.0), value)
        assert saturated[0, :, row, column].tolist() == pytest.approx(expected, abs=1e-5)


def test_water_brightens_and_mud_is_brown() -> None:
    water = floats("spatter", grey(60), 2, 0) - 60 / 255
    assert water.min().item() >= -1e-6
    wet = (water > 1e-6).float().mean().item()
    assert 0.02 < wet < 0.2
    assert water.amax((1, 2, 3)).tolist() == pytest.approx([0.5 * 238 / 255] * COUNT, abs=1e-4)
    mud = cifar.corrupt_cifar(grey(255), "spatter", 5, seed=0)
    covered = (mud < 255).any(1)
    assert 0.02 < covered.float().mean().item() < 0.2
    red, green, blue = mud.float().permute(1, 0, 2, 3)[:, covered].mean(1).tolist()
    assert 63 <= red < 110
    assert red > green > blue


# --- digital ---


@pytest.mark.parametrize("severity", cifar.SEVERITIES)
def test_contrast_shrinks_towards_the_mean_of_each_channel(severity: int) -> None:
    pixels = natural(COUNT).float() / 255
    found = cifar_digital.contrast(pixels, severity)
    assert torch.allclose(found.mean((2, 3)), pixels.mean((2, 3)), atol=1e-5)
    assert torch.allclose(found.std((2, 3)), cifar_digital.CONTRAST[severity - 1] * pixels.std((2, 3)), rtol=1e-3)


def test_elastic_transform_moves_smooth_images_a_little(seed: int) -> None:
    place = torch.arange(32.0) / 31
    slope = torch.stack([place.expand(32, 32), place[:, None].expand(32, 32), torch.full((32, 32), 0.5)])
    images = slope.expand(COUNT, 3, 32, 32)
    for severity, (_, _, reach) in enumerate(cifar_digital.ELASTIC, 1):
        found = cifar_digital.elastic_transform(images, severity, generator_for(seed, "elastic"))
        assert (found[:, 2] - 0.5).abs().max().item() < 1e-5
        moved = (found - images)[:, :2, 8:24, 8:24] * 31
        assert 0.2 * 32 * reach < moved.square().mean().sqrt().item() < 32 * reach
    still = cifar_digital.ELASTIC[0]
    assert still[:2] == (0, 0)  # the mildest has no local moves: lines stay straight
    found = cifar_digital.elastic_transform(images, 1, generator_for(seed, "elastic"))[:, :2, 10:22, 10:22]
    assert found.diff(n=2, dim=3).abs().max().item() < 1e-5


def test_pixelate_is_pillows_box() -> None:
    image_module = pytest.importorskip("PIL.Image")
    images = natural(8)
    for severity, share in enumerate(cifar_digital.PIXELATE, 1):
        found = cifar.corrupt_cifar(images, "pixelate", severity, seed=0)
        small = int(32 * share)
        for image, corrupted in zip(images, found, strict=True):
            picture = image_module.fromarray(image.permute(1, 2, 0).numpy())
            picture = picture.resize((small, small), image_module.Resampling.BOX)
            picture = picture.resize((32, 32), image_module.Resampling.BOX)
            assert np.array_equal(np.asarray(picture), corrupted.permute(1, 2, 0).numpy())


def test_jpeg_is_pillows_but_for_few_pixels(seed: int) -> None:
    image_module = pytest.importorskip("PIL.Image")
    images = natural(40, seed)
    for severity, quality in enumerate(cifar_digital.JPEG_QUALITY, 1):
        expected = []
        for image in images:
            file = io.BytesIO()
            image_module.fromarray(image.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=quality)
            expected.append(torch.from_numpy(np.array(image_module.open(file))).permute(2, 0, 1))
        found = cifar.corrupt_cifar(images, "jpeg_compression", severity, seed=0)
        difference = (found.int() - torch.stack(expected).int()).abs().float()
        assert (difference > 0).float().mean().item() < 0.06
        assert difference.mean().item() < 0.1
        assert psnr(images, found) == pytest.approx(psnr(images, torch.stack(expected)), abs=0.05)


def test_jpeg_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="sides that are multiples of 16, but got shape"):
        jpeg.compressed(torch.zeros(1, 3, 28, 28), 50)

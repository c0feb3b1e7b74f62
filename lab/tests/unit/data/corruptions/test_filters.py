"""Filters against scipy and against the same done pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Generator, Tensor

from selbo.random import generator_for
from selbo_lab.data.corruptions import filters


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=generator_for(seed, "filters"))


@pytest.mark.parametrize("padding", ["nearest", "reflect", "mirror"])
@pytest.mark.parametrize(("sigma", "truncate"), [(0.05, 4.0), (0.4, 4.0), (1.0, 3.0), (6.4, 3.0)])
def test_gaussian_blur_is_scipys(sigma: float, truncate: float, padding: filters.Padding) -> None:
    images = noise(2, 3, 12, 9)
    expected = ndimage.gaussian_filter(images.double().numpy(), (0, 0, sigma, sigma), mode=padding, truncate=truncate)
    found = filters.gaussian_filter(images, sigma, truncate=truncate, padding=padding)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_a_blur_of_no_width_changes_nothing() -> None:
    images = noise(1, 1, 5, 7)
    assert torch.equal(filters.gaussian_filter(images, 0.0), images)


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.02, 1.05, 1.25, 1.75, 2.25])
def test_clipped_zoom_is_scipys_zoom_of_the_middle(factor: float) -> None:
    images = noise(1, 2, 32, 32)
    kept = int(np.ceil(32 / factor))
    first = (32 - kept) // 2
    middle = images.double().numpy()[0, 1, first : first + kept, first : first + kept]
    grown = ndimage.zoom(middle, factor, order=1)
    first = (len(grown) - 32) // 2
    expected = grown[first : first + 32, first : first + 32]
    np.testing.assert_allclose(filters.clipped_zoom(images, factor)[0, 1].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("padding", ["reflect", "mirror"])
def test_warp_is_scipys_map_coordinates(padding: str, seed: int) -> None:
    images = noise(2, 2, 11, 8, seed=seed)
    rows, columns = torch.rand(2, 2, 11, 8, generator=generator_for(seed, "places")) * 20 - 6
    found = filters.warp(images, rows, columns, padding=padding)
    for image in range(2):
        expected = ndimage.map_coordinates(
            images[image, 1].double().numpy(), [rows[image].numpy(), columns[image].numpy()], order=1, mode=padding
        )
        np.testing.assert_allclose(found[image, 1].numpy(), expected, atol=1e-5)


def test_disk_kernels() -> None:
    for radius, blur in ((0.3, 0.4), (1.5, 0.1), (9.0, 1.0)):
        kernel = filters.disk_kernel(radius, blur)
        assert kernel.sum().item() == pytest.approx(1, abs=1e-12)
        assert torch.allclose(kernel, kernel.T)
        assert torch.allclose(kernel, kernel.flip(0))
    cross = filters.disk_kernel(1.0, 0.1)  # hardly softened: a plus of five pixels
    assert cross[2, 1:4].tolist() == pytest.approx([0.2, 0.2, 0.2], abs=1e-6)
    assert cross[1, 1].item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("padding", ["nearest", "mirror"])
def test_filter_each_is_scipys_correlate(padding: filters.Padding) -> None:
    images, kernels = noise(2, 3, 9, 7), noise(2, 5, 5, seed=1)
    found = filters.filter_each(images, kernels, padding=padding)
    for image in range(2):
        expected = ndimage.correlate(images[image, 2].double().numpy(), kernels[image].double().numpy(), mode=padding)
        np.testing.assert_allclose(found[image, 2].numpy(), expected, atol=1e-5)
    same = filters.filter_each(images, kernels[1], padding=padding)
    assert torch.allclose(same[1], found[1])
    assert not torch.allclose(same[0], found[0])


def test_motion_kernels_have_sum_one_and_point_along_their_angle() -> None:
    kernels = filters.motion_kernels(6, 2.0, torch.tensor([0.0, 90.0, -90.0, 45.0, 20.0]))
    assert kernels.shape == (5, 25, 25)
    assert kernels.sum((1, 2)).tolist() == pytest.approx([1.0] * 5, abs=1e-6)
    place = torch.arange(25.0) - 12
    down, right = (kernels * place[:, None]).sum((1, 2)), (kernels * place).sum((1, 2))
    weights = np.exp(-0.5 * (np.arange(13) / 2.0) ** 2)
    mean = (weights * np.arange(13)).sum() / weights.sum()
    assert down.tolist()[:3] == pytest.approx([0, mean, -mean], abs=1e-3)
    assert right.tolist()[:3] == pytest.approx([mean, 0, 0], abs=1e-3)
    assert down[3].item() == right[3].item()
    assert 0 < down[4] < 0.6 * right[4]


def test_motion_blur_is_the_filter_with_motion_kernels(seed: int) -> None:
    images = noise(4, 3, 10, 14, seed=seed)
    angles = 360 * noise(4, seed=seed + 1)
    expected = filters.filter_each(images, filters.motion_kernels(4, 1.5, angles), padding="nearest")
    assert torch.allclose(filters.motion_filter(images, 4, 1.5, angles), expected, atol=1e-6)


def shuffled_pixel_by_pixel(image: Tensor, distance: int, iterations: int, generator: Generator, swap: bool) -> Tensor:
    image = image.clone()
    _, height, width = image.shape
    for _ in range(iterations):
        steps = torch.randint(-distance, distance, (2, 1, height * width), generator=generator)
        for row in range(height - distance, distance, -1):
            for column in range(width - distance, distance, -1):
                down, right = steps[:, 0, row * width + column].tolist()
                here, there = image[:, row, column].clone(), image[:, row + down, column + right].clone()
                image[:, row, column] = there
                if swap:
                    image[:, row + down, column + right] = here
    return image


@pytest.mark.parametrize("swap", [True, False])
@pytest.mark.parametrize("distance", [1, 2, 3])
def test_glass_shuffle_in_fronts_is_the_shuffle_pixel_by_pixel(distance: int, swap: bool, seed: int) -> None:
    image = noise(1, 2, 13, 11, seed=seed)
    found = filters.glass_shuffle(image, distance, 2, generator_for(seed, "glass"), swap=swap)
    expected = shuffled_pixel_by_pixel(image[0], distance, 2, generator_for(seed, "glass"), swap)
    assert torch.equal(found[0], expected)


def test_glass_shuffle_keeps_the_pixels_and_leaves_the_first_rows(seed: int) -> None:
    images = noise(3, 2, 16, 16, seed=seed)
    found = filters.glass_shuffle(images, 2, 1, generator_for(seed, "glass"))
    assert not torch.equal(found, images)
    assert torch.equal(found.flatten(2).sort().values, images.flatten(2).sort().values)
    assert torch.equal(found[:, :, 0], images[:, :, 0])
    moved = filters.glass_shuffle(images[:1].repeat(2, 1, 1, 1), 2, 1, generator_for(seed, "glass"))
    assert not torch.equal(moved[0], moved[1])  # each image has moves of its own


def test_plasma_fractals_are_smooth_and_fill_the_range(seed: int) -> None:
    rough, smooth = (
        filters.plasma_fractal(64, 32, decay, generator_for(seed, "plasma", decay)) for decay in (1.2, 3.0)
    )
    for clouds in (rough, smooth):
        assert clouds.shape == (64, 32, 32)
        assert clouds.flatten(1).min(1).values.tolist() == [0.0] * 64
        assert clouds.flatten(1).max(1).values.tolist() == [1.0] * 64
    rough_power, smooth_power = (power_by_frequency(clouds) for clouds in (rough, smooth))
    assert smooth_power[0] > 20 * smooth_power[1] > 100 * smooth_power[2]
    assert rough_power[2] / rough_power[0] > 10 * smooth_power[2] / smooth_power[0]


def power_by_frequency(images: Tensor) -> list[float]:
    """Mean power at 1 to 2, 3 to 5 and 8 to 15 waves an image."""
    power = torch.fft.fft2(images).abs().square().mean(0)
    waves = torch.fft.fftfreq(images.shape[-1]).abs() * images.shape[-1]
    highest = torch.maximum(waves[:, None], waves)
    return [power[(highest >= low) & (highest <= high)].mean().item() for low, high in ((1, 2), (3, 5), (8, 15))]


def test_a_fractal_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="`size` must be a power of 2 and at least 2, but got 28"):
        filters.plasma_fractal(1, 28, 2.0, generator_for(0))

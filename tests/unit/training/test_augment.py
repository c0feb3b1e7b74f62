"""Crop-and-flip: each image becomes one of its shifted and mirrored selves, by itself."""

import pytest
import torch
from torch.nn import functional as F

import selbo
from selbo.training import engines
from selbo.training.augment import crop_and_flip


def versions(image, padding):
    """All (2p+1)^2 * 2 images that may come out, by slicing."""
    height, width = image.shape[-2:]
    padded = F.pad(image, (padding,) * 4)
    crops = [
        padded[:, top : top + height, left : left + width]
        for top in range(2 * padding + 1)
        for left in range(2 * padding + 1)
    ]
    return torch.stack([*crops, *(crop.flip(-1) for crop in crops)])


@pytest.mark.parametrize("shape", [(40, 1, 5, 7), (30, 3, 6, 4)])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_every_image_is_one_of_its_shifted_and_mirrored_selves(shape, padding, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(shape, generator=generator)
    changed = crop_and_flip(images, padding=padding, generator=generator)
    assert changed.shape == images.shape
    assert changed.stride() == images.stride()
    for image, result in zip(images, changed, strict=True):
        assert (versions(image, padding) == result).flatten(1).all(1).any()


def test_images_are_changed_independently_and_every_change_is_as_frequent(seed):
    generator = torch.Generator().manual_seed(seed)
    image = torch.arange(1.0, 13.0).reshape(1, 3, 4)
    count, padding = 20_000, 1
    changed = crop_and_flip(image.expand(count, 1, 3, 4), padding=padding, generator=generator)
    matches = (changed.unsqueeze(1) == versions(image, padding)).flatten(2).all(2)
    which = matches.long().argmax(1)
    assert matches.any(1).all()
    kinds = 2 * (2 * padding + 1) ** 2
    frequency = torch.bincount(which, minlength=kinds) / count
    error = (1 / kinds * (1 - 1 / kinds) / count) ** 0.5
    assert ((frequency - 1 / kinds) / error).abs().max() < 5
    # neighbours: as often the same as chance has it
    same = (which[1:] == which[:-1]).double().mean()
    assert abs(same - 1 / kinds) / error < 5


def test_the_generator_decides(seed):
    images = torch.randn(16, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
    one, same, other = (crop_and_flip(images, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(("name", "padding"), [("crop_and_flip", 4), ("shift_and_flip", 1)])
def test_fit_shifts_by_as_many_pixels_as_the_name_says(name, padding, monkeypatch):
    seen = []

    def changed(images, **settings):
        seen.append(settings["padding"])
        return crop_and_flip(images, **settings)

    monkeypatch.setattr(engines, "crop_and_flip", changed)
    data = torch.zeros(8, 1, 28, 28), torch.arange(8) % 2
    network = selbo.models.LeNet(generator=torch.Generator().manual_seed(0))
    selbo.fit(network, selbo.CrossEntropy(8), data, steps=2, batch_size=4, augment=name)
    assert seen == [padding, padding]


def test_vectors_are_refused():
    with pytest.raises(ValueError, match=r"`augment` needs images of shape \(B, C, H, W\), but got \(4, 3\)"):
        crop_and_flip(torch.zeros(4, 3))


def test_a_negative_padding_is_refused():
    with pytest.raises(ValueError, match="`padding` must be a whole number of at least 0"):
        crop_and_flip(torch.zeros(1, 1, 2, 2), padding=-1)

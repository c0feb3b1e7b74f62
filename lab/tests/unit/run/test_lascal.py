"""A temperature for a target domain under label shift, without its labels."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import beta
from torch import Tensor

from selbo_lab.run.lascal import KERNEL_BANDWIDTH, LARGEST_TEMPERATURE, TargetCalibrationError, lascal_temperature

EQUAL = (1 / 3, 1 / 3, 1 / 3)
UNEQUAL = (0.6, 0.3, 0.1)


def cases(
    count: int, fractions: tuple[float, ...], *, meant_for: tuple[float, ...], seed: int
) -> tuple[Tensor, Tensor]:
    """Labels with these class fractions, and log-probabilities that are right where the fractions are others."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(torch.tensor(fractions), count, replacement=True, generator=generator)
    inputs = torch.randn(count, len(fractions), generator=generator).double()
    inputs[torch.arange(count), labels] += 2
    return (2 * inputs + torch.tensor(meant_for).log()).log_softmax(-1), labels


def both_domains(fractions: tuple[float, ...], factor: float, count: int = 3000) -> tuple[Tensor, Tensor, Tensor]:
    """Unlabelled and labelled log-probabilities, and the labels; a factor on the logits is the error."""
    there, _ = cases(count, fractions, meant_for=fractions, seed=1)
    here, labels = cases(count, EQUAL, meant_for=fractions, seed=2)
    return (there * factor).log_softmax(-1), (here * factor).log_softmax(-1), labels


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_the_estimate_is_that_of_direct_kernel_sums(temperature: float) -> None:
    there, here, labels = both_domains(UNEQUAL, 1.5, 400)
    p, q = (there / temperature).softmax(-1).numpy(), (here / temperature).softmax(-1).numpy()

    def kernels(at: np.ndarray, centres: np.ndarray) -> np.ndarray:
        return beta.pdf(at[:, None], centres / KERNEL_BANDWIDTH + 1, (1 - centres) / KERNEL_BANDWIDTH + 1)

    squares = []
    for k in range(3):
        of_class = (labels == k).numpy()
        labelled = UNEQUAL[k] / of_class.mean() * kernels(p[:, k], q[of_class, k]).sum(1) / 400
        density = (kernels(p[:, k], p[:, k]) * (1 - np.eye(400))).sum(1) / 399
        squares.append((np.minimum(labelled / density, 1) - p[:, k]) ** 2)
    expected = float(np.mean(squares))
    assert TargetCalibrationError(there, here, labels, UNEQUAL)(temperature) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("fractions", [EQUAL, UNEQUAL])
@pytest.mark.parametrize("factor", [0.4, 1.0, 2.5])
def test_a_known_temperature_is_found_under_a_known_label_shift(fractions: tuple[float, ...], factor: float) -> None:
    found = lascal_temperature(*both_domains(fractions, factor), fractions)
    assert abs(math.log(found / factor)) < 0.2
    if fractions == UNEQUAL:  # without the shift it would be another one
        without = lascal_temperature(*both_domains(fractions, factor), EQUAL)
        assert abs(math.log(without / factor)) > 2 * abs(math.log(found / factor))


def test_the_estimate_vanishes_at_an_infinite_temperature_if_classes_are_equal() -> None:
    """So a global minimum would run away, although predictions there are useless."""
    error = TargetCalibrationError(*both_domains(EQUAL, 0.4), EQUAL)
    assert error(1e6) < 1e-6 < error(0.4) < error(1.0)
    unequal = TargetCalibrationError(*both_domains(UNEQUAL, 0.4), UNEQUAL)
    assert unequal(1e6) == pytest.approx(sum((each - 1 / 3) ** 2 for each in UNEQUAL) / 3, rel=0.01)


def test_a_temperature_that_runs_away_stops_at_the_bound() -> None:
    there, here, labels = both_domains(EQUAL, 1.0)
    guessed = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(3))]
    assert lascal_temperature(there, here, guessed, EQUAL) == pytest.approx(LARGEST_TEMPERATURE)


def test_a_class_without_a_label_counts_as_absent() -> None:
    there, here, labels = both_domains(UNEQUAL, 1.0, 300)
    missing = labels == 2
    never = here.clone()
    never[missing] = torch.tensor([0.0, -1e3, -1e3]).double()
    kept = TargetCalibrationError(there, here[~missing], labels[~missing], (0.6, 0.4, 0.0))
    none = TargetCalibrationError(there, never, labels, (0.6, 0.4, 0.0))
    assert kept(1.0) == pytest.approx(none(1.0))

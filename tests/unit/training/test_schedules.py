"""Learning rates by step, against torch's own schedulers."""

import math

import pytest
import torch

from selbo.training.schedules import Schedule


def torchs_own(make, values, rate=0.1):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    scheduler = make(optimizer)
    rates = []
    for value in values:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step(*value)
    return rates


def test_constant():
    schedule = Schedule("constant", rate=0.3, steps=10)
    schedule.validated(1.0)
    assert [schedule.rate_at(step) for step in range(10)] == [0.3] * 10


def test_cosine_is_torchs():
    schedule = Schedule("cosine", rate=0.1, steps=13)
    expected = torchs_own(lambda each: torch.optim.lr_scheduler.CosineAnnealingLR(each, 13), [()] * 13)
    assert [schedule.rate_at(step) for step in range(13)] == pytest.approx(expected, rel=1e-9)


def test_plateau_is_torchs():
    # up, down, equal for long, one improvement, equal again
    values = [2.0, 1.0, *[1.5] * 11, 1.2, *[1.0] * 12, 0.5, *[0.5] * 30]
    schedule = Schedule("plateau", rate=0.1, steps=len(values))
    rates = []
    for step, value in enumerate(values):
        rates.append(schedule.rate_at(step))
        schedule.validated(value)
    expected = torchs_own(
        lambda each: torch.optim.lr_scheduler.ReduceLROnPlateau(each, factor=0.5, threshold=0.0),
        [(value,) for value in values],
    )
    assert rates == pytest.approx(expected, rel=1e-12)
    assert min(rates) < 0.1 / 4


def test_plateau_goes_on_from_its_state():
    one = Schedule("plateau", rate=1.0, steps=100)
    for _ in range(20):
        one.validated(1.0)
    other = Schedule("plateau", rate=1.0, steps=100)
    other.state = dict(one.state)
    for _ in range(7):
        one.validated(1.0)
        other.validated(1.0)
        assert one.rate_at(0) == other.rate_at(0)
    assert one.rate_at(0) == 0.25


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf, "fast"])
def test_bad_rates(rate):
    with pytest.raises(ValueError, match="`learning_rate` must be a"):
        Schedule("constant", rate=rate, steps=1)


def test_unknown():
    with pytest.raises(ValueError, match=r"`schedule` must be one of .*'cosine'.*, but got 'step'"):
        Schedule("step", rate=1.0, steps=1)


def test_warm_up_is_torchs():
    schedule = Schedule("constant", rate=0.1, steps=9, warmup=4)
    expected = torchs_own(lambda each: torch.optim.lr_scheduler.LinearLR(each, 0.25, 1.0, 3), [()] * 9)
    assert [schedule.rate_at(step) for step in range(9)] == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ValueError, match="`warmup_steps` must be"):
        Schedule("constant", rate=0.1, steps=9, warmup=-1)

"""Every refusal names the argument, says what was expected, and shows what came; good input comes back unchanged."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor

from selbo import _checks

NOT_NUMBERS = [("two", "'two'"), (None, "None"), ([1.0, 2.0], "[1.0, 2.0]"), (1j, "1j")]

NUMBER_CHECKS: dict[str, Callable[[object], object]] = {
    "positive": lambda value: _checks.positive("rate", value),
    "non_negative": lambda value: _checks.non_negative("rate", value),
    "fraction": lambda value: _checks.fraction("rate", value, low=0.25, high=1),
    "increasing": lambda value: _checks.increasing("rate", [0.1, value], low=0, high=1),
    "simplex": lambda value: _checks.simplex("rate", [0.1, value, 0.2]),
}


def refused(message: str) -> AbstractContextManager[object]:
    """The message, from its first letter to its last."""
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")


@pytest.mark.parametrize("check", NUMBER_CHECKS)
@pytest.mark.parametrize(("value", "shown"), NOT_NUMBERS)
def test_what_is_no_number_is_refused(check: str, value: object, shown: str) -> None:
    with refused(f"`rate` must be a number, but got {shown}"):
        NUMBER_CHECKS[check](value)


@pytest.mark.parametrize("check", NUMBER_CHECKS)
def test_nan_is_refused(check: str) -> None:
    with refused("`rate` must be a number, but got NaN"):
        NUMBER_CHECKS[check](math.nan)


# --- one number ---


@pytest.mark.parametrize("value", [1e-300, 1, 2.5, torch.tensor(0.5)])
def test_positive_numbers_pass(value: float) -> None:
    assert _checks.positive("rate", value) == float(value)
    assert type(_checks.positive("rate", value)) is float


@pytest.mark.parametrize(("value", "shown"), [(0.0, "0.0"), (-0.5, "-0.5"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_positive_refuses(value: float, shown: str) -> None:
    with refused(f"`rate` must be a finite number greater than 0, but got {shown}"):
        _checks.positive("rate", value)


def test_non_negative_numbers_pass() -> None:
    assert [_checks.non_negative("rate", v) for v in (0, 0.0, 3, 1e300)] == [0.0, 0.0, 3.0, 1e300]


@pytest.mark.parametrize(("value", "shown"), [(-1e-9, "-1e-09"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_non_negative_refuses(value: float, shown: str) -> None:
    with refused(f"`rate` must be a finite number of at least 0, but got {shown}"):
        _checks.non_negative("rate", value)


def test_fractions_pass() -> None:
    assert _checks.fraction("share", 0.26, low=0.25, high=1) == 0.26
    assert _checks.fraction("share", 0.999, low=0.25, high=1, reason="!") == 0.999


@pytest.mark.parametrize("value", [0.25, 1.0, 0.0, -3.0, 1.5, math.inf])
def test_fraction_refuses_its_ends_and_what_lies_beyond(value: float) -> None:
    hint = ": 1.5 % is 0.015" if value == 1.5 else ""
    with refused(f"`share` must lie strictly between 0.25 and 1, but got {value!r}{hint}"):
        _checks.fraction("share", value, low=0.25, high=1)
    with refused(f"`share` must lie strictly between 0.25 and 1, as any share, but got {value!r}{hint}"):
        _checks.fraction("share", value, low=0.25, high=1, reason=", as any share")


def test_whole_numbers_pass() -> None:
    assert _checks.whole("count", 2, at_least=2) == 2
    assert _checks.whole("count", 0, at_least=0) == 0


@pytest.mark.parametrize("value", [1, 0, -4, 2.0, 3.5, "3", True, None, math.nan])
def test_whole_refuses(value: int) -> None:
    with refused(f"`count` must be a whole number of at least 2, but got {value!r}"):
        _checks.whole("count", value, at_least=2)


def test_true_is_not_the_number_one() -> None:
    with refused("`count` must be a whole number of at least 0, but got True"):
        _checks.whole("count", True, at_least=0)


def test_choices_pass_and_others_are_refused_with_the_choices_in_order() -> None:
    assert _checks.one_of("form", "b", {"b", "a"}) == "b"
    with refused("`form` must be one of ['a', 'b', 'c'], but got 'd'"):
        _checks.one_of("form", "d", ("c", "a", "b"))


# --- several numbers ---


def test_increasing_numbers_pass() -> None:
    assert _checks.increasing("edges", [0.1, 0.5, 0.75], low=0, high=1) == (0.1, 0.5, 0.75)
    assert _checks.increasing("edges", (0.3,), low=0.25, high=1) == (0.3,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "must hold at least one number, but got none"),
        ([0.25, 0.5], "must lie strictly between 0.25 and 1, but got [0.25, 0.5]"),
        ([0.5, 1], "must lie strictly between 0.25 and 1, but got [0.5, 1.0]"),
        ([0.5, -1], "must lie strictly between 0.25 and 1, but got [0.5, -1.0]"),
        ([0.5, math.inf], "must lie strictly between 0.25 and 1, but got [0.5, inf]"),
        ([0.5, 0.5], "must be strictly increasing, but got [0.5, 0.5]"),
        ([0.3, 0.7, 0.6], "must be strictly increasing, but got [0.3, 0.7, 0.6]"),
    ],
)
def test_increasing_refuses(values: list[float], message: str) -> None:
    with refused(f"`edges` {message}"):
        _checks.increasing("edges", values, low=0.25, high=1)


def test_a_simplex_passes_and_is_normalised() -> None:
    assert _checks.simplex("masses", [0.25, 0.75]) == (0.25, 0.75)
    off = _checks.simplex("masses", [0.2, 0.3, 0.5000005])
    assert off == pytest.approx((0.2 / 1.0000005, 0.3 / 1.0000005, 0.5000005 / 1.0000005), rel=1e-15)
    assert math.fsum(off) == pytest.approx(1, abs=1e-15)
    assert _checks.simplex("masses", [1.0], at_least=1) == (1.0,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "must hold at least 2 numbers, but got 0"),
        ([1.0], "must hold at least 2 numbers, but got 1"),
        ([0, 1], "must be positive, every one of them, but got [0.0, 1.0]"),
        ([-0.5, 1.5], "must be positive, every one of them, but got [-0.5, 1.5]"),
        ([0.5, math.inf], "must be positive, every one of them, but got [0.5, inf]"),
        ([0.5, 0.25], "must sum to 1, but the sum of [0.5, 0.25] is 0.75"),
        ([0.5, 0.500002], "must sum to 1, but the sum of [0.5, 0.500002] is 1"),
        ([0.5, 0.499998], "must sum to 1, but the sum of [0.5, 0.499998] is 0.999998"),
    ],
)
def test_simplex_refuses(values: list[float], message: str) -> None:
    with refused(f"`masses` {message}"):
        _checks.simplex("masses", values)


def test_simplex_counts_from_the_number_asked_for() -> None:
    with refused("`masses` must hold at least 4 numbers, but got 3"):
        _checks.simplex("masses", [0.2, 0.3, 0.5], at_least=4)


# --- tensors ---


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_floating_tensors_pass(dtype: torch.dtype) -> None:
    tensor = torch.zeros(2, dtype=dtype)
    assert _checks.floating("inputs", tensor) is tensor


@pytest.mark.parametrize(
    ("value", "came"),
    [
        (torch.tensor([1, 2]), "dtype torch.int64"),
        (torch.tensor([True]), "dtype torch.bool"),
        ([0.5], "list"),
        (None, "NoneType"),
        (0.5, "float"),
    ],
)
def test_floating_refuses(value: Tensor, came: str) -> None:
    with refused(f"`inputs` must be a floating-point tensor, but got {came}"):
        _checks.floating("inputs", value)


def three_classes(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor([[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]], dtype=torch.float64).log().to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 3), (2, 1, 1, 3)])
def test_log_probabilities_pass_at_every_precision(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    rows = three_classes(dtype).reshape(shape)
    assert _checks.log_probs(rows, num_classes=3, validate=True) is rows


def test_a_certain_prediction_passes() -> None:
    rows = torch.tensor([[0.0, -math.inf]])
    assert _checks.log_probs(rows, num_classes=2, validate=True) is rows


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.tensor([[0, -1, -2]]), "must be a floating-point tensor, but got dtype torch.int64"),
        (torch.zeros(3), "must have shape (..., batch, classes), but got (3,)"),
        (torch.tensor(0.0), "must have shape (..., batch, classes), but got ()"),
        (
            torch.zeros(5, 4),
            "must have 3 classes in its last dimension, as the partition has, but got shape (5, 4)",
        ),
        (torch.zeros(0, 3), "must not be an empty batch, but got shape (0, 3)"),
        (torch.zeros(0, 2, 3), "must not be an empty batch, but got shape (0, 2, 3)"),
    ],
)
def test_type_and_shape_of_log_probabilities_are_always_checked(rows: Tensor, message: str, validate: bool) -> None:
    with refused(f"`log_probs` {message}"):
        _checks.log_probs(rows, num_classes=3, validate=validate)
    with refused(f"`earlier` {message}"):
        _checks.log_probs(rows, num_classes=3, validate=validate, name="earlier")


BAD_VALUES = [
    ([[-0.5, math.nan], [math.nan, math.nan]], "must hold numbers, but got 3 NaN"),
    (
        [[2.5, -1.0], [0.1, -4.0]],
        "must be logarithms of probabilities, at most 0, but the largest is 2.5; "
        "if these are logits, pass `logits.log_softmax(-1)`",
    ),
    (
        [[math.inf, -1.0]],
        "must be logarithms of probabilities, at most 0, but the largest is inf; "
        "if these are logits, pass `logits.log_softmax(-1)`",
    ),
    (
        [[math.log(0.5), math.log(0.5)], [math.log(0.25), math.log(0.25)]],
        "must lie on the simplex: the probabilities of a row differ from a sum of 1 by up to 0.5",
    ),
    (
        [[-math.inf, -math.inf]],
        "must lie on the simplex: the probabilities of a row differ from a sum of 1 by up to 1",
    ),
]


@pytest.mark.parametrize(("rows", "message"), BAD_VALUES)
def test_values_of_log_probabilities_are_checked_on_request(rows: list[list[float]], message: str) -> None:
    tensor = torch.tensor(rows, dtype=torch.float64)
    with refused(f"`log_probs` {message}"):
        _checks.log_probs(tensor, num_classes=2, validate=True)
    assert _checks.log_probs(tensor, num_classes=2, validate=False) is tensor


@pytest.mark.parametrize(
    ("dtype", "allowed", "refused_gap"),
    [
        (torch.float64, 5e-7, 2e-6),
        (torch.float32, 5e-5, 2e-4),
        (torch.float16, 1e-2, 4e-2),
        (torch.bfloat16, 5e-2, 0.2),
    ],
)
def test_rows_may_be_off_by_the_rounding_of_their_precision(
    dtype: torch.dtype, allowed: float, refused_gap: float
) -> None:
    def rows(gap: float) -> Tensor:
        return torch.tensor([[0.5, 0.5 - gap]], dtype=torch.float64).log().to(dtype)

    _checks.log_probs(rows(allowed), num_classes=2, validate=True)
    with pytest.raises(ValueError, match=r"`log_probs` must lie on the simplex"):
        _checks.log_probs(rows(refused_gap), num_classes=2, validate=True)


def test_checking_leaves_the_tensor_alone() -> None:
    rows = three_classes().requires_grad_()
    before = rows.detach().clone()
    assert _checks.log_probs(rows, num_classes=3, validate=True) is rows
    assert torch.equal(rows.detach(), before)
    assert rows.requires_grad


# --- masses on the simplex ---


def test_masses_on_the_simplex_pass() -> None:
    _checks.on_simplex("s0", torch.tensor([[0.0, 1.0], [0.5, 0.5]]))
    _checks.on_simplex("s0", torch.tensor([0.2, 0.8], dtype=torch.float64), strictly_positive=True)
    _checks.on_simplex("s0", torch.tensor([0.2, 0.8 + 5e-5]))  # single precision
    _checks.on_simplex("s0", torch.tensor([0.2, 0.8]).requires_grad_())


@pytest.mark.parametrize(
    ("masses", "strictly_positive", "message"),
    [
        ([0.5, math.nan], False, "must hold numbers, but got 1 NaN"),
        ([[math.nan, 1.0], [math.nan, 1.0]], True, "must hold numbers, but got 2 NaN"),
        ([-0.25, 1.25], False, "must be at least 0 everywhere, but the smallest mass is -0.25"),
        ([-0.25, 1.25], True, "must be positive everywhere, but the smallest mass is -0.25"),
        ([0.0, 1.0], True, "must be positive everywhere, but the smallest mass is 0"),
        ([0.5, 0.25], False, "must lie on the simplex: the masses differ from a sum of 1 by up to 0.25"),
        ([[0.5, 0.5], [0.5, 1.0]], True, "must lie on the simplex: the masses differ from a sum of 1 by up to 0.5"),
    ],
)
def test_masses_off_the_simplex_are_refused(masses: list[float], strictly_positive: bool, message: str) -> None:
    with refused(f"`s0` {message}"):
        _checks.on_simplex("s0", torch.tensor(masses, dtype=torch.float64), strictly_positive=strictly_positive)


def test_masses_in_double_precision_must_sum_to_one_within_a_millionth() -> None:
    masses = torch.tensor([0.2, 0.8 + 5e-5], dtype=torch.float64)
    with refused("`s0` must lie on the simplex: the masses differ from a sum of 1 by up to 5e-05"):
        _checks.on_simplex("s0", masses)


# --- a known fault ---


def test_a_whole_number_beyond_float64_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="`rate` must be"):
        _checks.positive("rate", 10**400)

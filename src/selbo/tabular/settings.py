"""What is asked of training on a table: the method, its numbers, and what is believed about the task."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from selbo import _checks, presets
from selbo.presets import METHODS, Method, summaries_for, trust_for, uncertainty_for
from selbo.summary.likelihood import SummaryLikelihood
from selbo.tabular.table import listed, nearest


@dataclass(frozen=True)
class Settings:
    """What is asked for; two runs with the same settings on the same data end the same.

    Attributes:
        target: Column with the labels.
        accuracy: How accurate anyone can be, if that is known.
        class_fractions: Fraction of each class: ``"0.7,0.3"`` in the order of the classes, ``"yes=0.3,no=0.7"``, or by
            name, which leaves no doubt whatever the names.
        concentration: Strength of the belief, in pseudo-observations; if not given, the number of training rows, but no
            more than 1000 of a belief about them.
        overrule_labels: Keep a concentration above the number of training rows.
        fraction_uncertainty: How far each class fraction may be off, where no accuracy is stated; if not given, a
            little if they are about unlabelled rows, and else not at all.
        method: One of `METHODS`; if not given, the Summary ELBO if something is believed, else the ELBO.
        hidden: Widths of the hidden layers.
        steps: Of training.
        batch_size: Rows a step.
        learning_rate: Of Adam.
        kl_weight: Factor of the KL divergence.
        prior_std: Standard deviation of the prior of the weights.
        drop: Columns to leave out.
        test_fraction: Share of the rows to test on.
        val_fraction: Share of the rows to validate on.
        draws: Weight draws a prediction.
        seed: Of everything random.
    """

    target: str
    accuracy: float | None = None
    class_fractions: str | Mapping[str, float] | None = None
    concentration: float | None = None
    overrule_labels: bool = False
    fraction_uncertainty: float | None = None
    method: str | None = None
    hidden: tuple[int, ...] = (128,)
    steps: int = 1000
    batch_size: int = 256
    learning_rate: float = 1e-3
    kl_weight: float = 0.1
    prior_std: float = 0.2
    drop: tuple[str, ...] = ()
    test_fraction: float = 0.2
    val_fraction: float = 0.1
    draws: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method is None:
            object.__setattr__(self, "method", "summary_elbo" if self.says_something else "elbo")
        assert self.method is not None
        _checks.one_of("--method", self.method, METHODS)
        if METHODS[self.method].believes and not self.says_something:
            raise ValueError(
                f"`--method {self.method}` needs something to believe: give `--accuracy` or `--class-fractions`"
            )
        if self.concentration is not None:
            _checks.positive("--concentration", self.concentration)
            if not self.says_something:
                raise ValueError(
                    "`--concentration` is trust in a belief, but none is stated: give `--accuracy` or "
                    "`--class-fractions`"
                )
        if self.fraction_uncertainty is not None:
            _checks.uncertainty("--fraction-uncertainty", self.fraction_uncertainty)
            if self.class_fractions is None:
                raise ValueError("`--fraction-uncertainty` is about class fractions: give `--class-fractions` too")
        if not self.hidden:
            raise ValueError("`--hidden` must hold at least one width, but got none")
        for width in self.hidden:
            _checks.whole("--hidden", width, at_least=1)
        for name in ("steps", "batch_size", "draws"):
            _checks.whole(f"--{name.replace('_', '-')}", getattr(self, name), at_least=1)
        _checks.positive("--learning-rate", self.learning_rate)
        _checks.positive("--prior-std", self.prior_std)
        _checks.non_negative("--kl-weight", self.kl_weight)

    @property
    def says_something(self) -> bool:
        """Whether anything is said about the task."""
        return self.accuracy is not None or self.class_fractions is not None

    @property
    def how(self) -> Method:
        """The method."""
        assert self.method is not None
        return METHODS[self.method]

    def check_unlabelled(self) -> None:
        """Refuse rows without labels where no belief would speak of them."""
        if not self.says_something:
            raise ValueError(
                "`--unlabelled` needs something to believe of these rows: give `--accuracy` or `--class-fractions`"
            )
        if not self.how.believes:
            raise ValueError(
                f"`--unlabelled` is for a method that uses what is believed, but `--method` is {self.method}"
            )

    def to_json(self) -> dict[str, Any]:
        """Plain data, as it is read back from JSON."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


# --- what is believed ---


def build_summaries(
    settings: Settings, classes: Sequence[str], *, shares: Sequence[float], num_train: int, about: str | None = None
) -> tuple[list[SummaryLikelihood], str]:
    """What is believed about the predictions, and the same in words.

    Args:
        settings: With an accuracy, or class fractions, or both.
        classes: Their names.
        shares: Share of each class in the training rows, which stand in for fractions that are not stated.
        num_train: Number of training rows, from which the trust in the belief follows unless stated.
        about: What it is about, in words, if not the training rows.
    """
    stated = settings.class_fractions is not None
    fractions = fractions_of(settings, classes, shares=shares)
    uncertainty = settings.fraction_uncertainty
    if uncertainty is None:
        uncertainty = uncertainty_for(fractions) if stated and about is not None else 0.0
    concentration = trust_for(num_train, elsewhere=about is not None)
    if settings.concentration is not None:
        concentration = settings.concentration if settings.overrule_labels else min(settings.concentration, num_train)
    give_or_take = f", give or take {100 * uncertainty:g}" if uncertainty and settings.accuracy is None else ""
    source = f"as stated{give_or_take}" if stated else "as in the training rows"
    words = f"{_fractions_in_words(classes, fractions)} ({source})"
    summaries = summaries_for(
        fractions,
        stated=stated,
        accuracy=settings.accuracy,
        concentration=concentration,
        fraction_uncertainty=uncertainty,
    )
    about = about or "all cases"
    if settings.accuracy is None:
        return summaries, f"Of {about}, {words}."
    return summaries, f"About {100 * settings.accuracy:g} % of {about} can be decided rightly; {words}."


def fractions_of(settings: Settings, classes: Sequence[str], *, shares: Sequence[float]) -> list[float]:
    """Class fractions in the order of the classes: as stated, or those of the training rows."""
    return list(shares) if settings.class_fractions is None else order_fractions(settings.class_fractions, classes)


def above_labels(settings: Settings, num_train: int) -> str:
    """What to say of a concentration above the number of labels, which is not used unless asked for; else nothing."""
    if settings.concentration is None or settings.concentration <= num_train:
        return ""
    stated = f"--concentration {settings.concentration:g}"
    above = f"{stated} exceeds the {num_train} training rows"
    if settings.overrule_labels:
        return f"{above}: the belief can overrule the labels, as --overrule-labels allows"
    return f"{above}, so {num_train} is used and the labels decide; --overrule-labels keeps {stated}"


def below_guessing(settings: Settings, classes: Sequence[str], *, shares: Sequence[float]) -> str:
    """What to say of an accuracy that is no higher than the share of the most frequent class; nothing if it is.

    Args:
        settings: With or without an accuracy.
        classes: Their names.
        shares: Share of each class in the training rows, which stand in for fractions that are not stated.
    """
    fractions = fractions_of(settings, classes, shares=shares)
    return "" if settings.accuracy is None else presets.below_guessing(settings.accuracy, fractions, classes)


def read_named_fractions(given: Sequence[str]) -> dict[str, float]:
    """Class fractions by name from texts such as ``"yes=0.3"``; the name is everything before the last ``=``.

    Example:
        >>> read_named_fractions(["a,b=0.3", "c=d=0.7"])
        {'a,b': 0.3, 'c=d': 0.7}
    """
    found: dict[str, float] = {}
    for text in given:
        name, _, value = text.rpartition("=")
        number = _number_or_none(value)
        if not name or number is None:
            raise ValueError(f"`--class-fraction` must be a class and a number such as yes=0.3, but got {text!r}")
        if name in found:
            raise ValueError(f"`--class-fraction` must name every class once, but {name!r} is there twice")
        found[name] = number
    return found


def order_fractions(given: str | Mapping[str, float], classes: Sequence[str]) -> list[float]:
    """Class fractions in the order of the classes, from either form of the option.

    Example:
        >>> order_fractions({"b,x": 0.8, "a,y": 0.2}, ["a,y", "b,x"])
        [0.2, 0.8]
    """
    if isinstance(given, str):
        return parse_fractions(given, classes)
    _check_names("--class-fraction", given, classes)
    return list(_checks.simplex("--class-fraction", [given[name] for name in classes]))


def _check_names(option: str, given: Mapping[str, float], classes: Sequence[str]) -> None:
    for name in given:
        if name not in classes:
            raise ValueError(f"`{option}` names {name!r}, which is no class: {nearest(name, classes)}")
    if missing := [name for name in classes if name not in given]:
        raise ValueError(f"`{option}` must name every class, but {listed(missing)} is missing")


def parse_fractions(text: str, classes: Sequence[str]) -> list[float]:
    """Class fractions from ``"0.7,0.3"``, in the order of the classes, or ``"yes=0.3,no=0.7"``.

    Example:
        >>> parse_fractions("yes=0.3, no=0.7", ["no", "yes"])
        [0.7, 0.3]
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    named = [part.rpartition("=") for part in parts]
    if any(sign for _, sign, _ in named):
        given = {name.strip(): _number(value) for name, _, value in named}
        _check_names("--class-fractions", given, classes)
        if len(given) < len(parts):
            raise ValueError(f"`--class-fractions` must name every class once, but got {text!r}")
        values = [given[name] for name in classes]
    else:
        values = [_number(part) for part in parts]
    if len(values) != len(classes):
        raise ValueError(
            f"`--class-fractions` must hold {len(classes)} numbers, for the classes {listed(classes)} in this order, "
            f"but got {len(values)}"
        )
    return list(_checks.simplex("--class-fractions", values))


def _number(text: str) -> float:
    number = _number_or_none(text)
    if number is None:
        raise ValueError(f"`--class-fractions` must be numbers such as 0.7,0.3 or no=0.7,yes=0.3, but {text!r} is none")
    return number


def _number_or_none(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _fractions_in_words(names: Sequence[str], fractions: Sequence[float]) -> str:
    classes = [f"class {name}" if name[-1:].isdigit() else name for name in names]  # a number beside a percentage
    shown = [f"{name} makes up {100 * share:.3g} %" for name, share in zip(classes, fractions, strict=True)]
    if len(shown) <= 4:
        return f"{', '.join(shown[:-1])} and {shown[-1].replace('makes up ', '')}"
    order = sorted(range(len(classes)), key=lambda k: fractions[k])
    return (
        f"the most frequent class, {classes[order[-1]]}, makes up {100 * fractions[order[-1]]:.3g} % and the rarest, "
        f"{classes[order[0]]}, {100 * fractions[order[0]]:.3g} %"
    )

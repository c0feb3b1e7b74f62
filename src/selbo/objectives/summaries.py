"""What objectives with summaries share: one or several, their names, and their worth."""

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from torch import Tensor, nn

from selbo.objectives.objective import Objective, View
from selbo.summary.likelihood import SummaryLikelihood

Summaries: TypeAlias = SummaryLikelihood | Sequence[SummaryLikelihood]
"""What the predictions should look like, in one respect or in several."""


class WithSummaries(Objective):
    """An objective with any number of summaries, whose log-likelihoods add up.

    They are taken for independent statements: each counts with its own concentration, and what two of them say alike
    counts twice.

    Args:
        summary: One or several; none for no summary term.
        num_data: N, the number of training examples.
        **settings: Of `Objective`.
    """

    def __init__(self, summary: Summaries | None, num_data: int, **settings: Any) -> None:
        super().__init__(num_data, **settings)
        given = _checked(summary)
        self.summary: SummaryLikelihood | nn.ModuleList | None = None
        if given:
            self.summary = given[0] if isinstance(summary, SummaryLikelihood) else nn.ModuleList(given)

    @property
    def summaries(self) -> tuple[SummaryLikelihood, ...]:
        """All summaries, in their order."""
        if self.summary is None:
            return ()
        if isinstance(self.summary, SummaryLikelihood):
            return (self.summary,)
        return tuple(cast(SummaryLikelihood, each) for each in self.summary)

    @property
    def summary_names(self) -> tuple[str, ...]:
        """Their names; those that have none are called by their number, from 0."""
        return _names(self.summaries)

    def _log_summaries(self, views: Sequence[View]) -> list[Tensor]:
        # what an objective has computed itself is a log-probability, or NaN if the network's answer is
        return [
            summary(*view, validate=bool(summary.validate)).mean()
            for summary, view in zip(self.summaries, views, strict=True)
        ]


def _checked(summary: Summaries | None) -> list[SummaryLikelihood]:
    if summary is None:
        return []
    given = [summary] if isinstance(summary, SummaryLikelihood) else summary
    if not isinstance(given, Sequence):
        raise ValueError(
            f"`summary` must be a selbo.SummaryLikelihood, or several in a list, but got {type(summary).__name__}"
        )
    for each in given:
        if not isinstance(each, SummaryLikelihood):
            raise ValueError(
                f"`summary` must be a selbo.SummaryLikelihood, or several in a list, but got {type(each).__name__}"
            )
    if not given:
        raise ValueError("`summary` must hold at least one selbo.SummaryLikelihood, but the list is empty")
    if len({id(each) for each in given}) < len(given):
        raise ValueError("`summary` must hold each selbo.SummaryLikelihood once, but one of them is there twice")
    names = _names(given)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"`summary` must hold summaries of different names, but two are called {twice[0]!r}")
    classes = {each.partition.num_classes for each in given}
    if len(classes) > 1:
        raise ValueError(f"`summary` must hold summaries of the same number of classes, but got {sorted(classes)}")
    return list(given)


def _names(summaries: Sequence[SummaryLikelihood]) -> tuple[str, ...]:
    return tuple(str(index) if each.name is None else each.name for index, each in enumerate(summaries))

"""The histogram of the authors' code moves no logits back from the ends, where the library's does (test_toy.py)."""

import pytest
from statistical.test_toy import BELIEFS, EDGES, start_logits, total_variation

from selbo_lab.published import HISTOGRAM_FLOOR, PSEUDO_COUNT, ClosedScoreBins, PublishedSummary


@pytest.mark.parametrize(("belief", "stuck_at"), [("uniform", 0.79), ("Beta(5, 5)", 0.98)])
def test_the_published_histogram_cannot_repair_over_confidence(belief, stuck_at, seed):
    """The audit found .797 and .995 where it started from .80 and 1.00: nothing comes back from the ends."""
    summary = PublishedSummary(
        ClosedScoreBins(EDGES),
        BELIEFS[belief],
        concentration=1000.0,
        pseudo_count=PSEUDO_COUNT,
        histogram_floor=HISTOGRAM_FLOOR,
    )
    (distance,) = total_variation(summary, start_logits("over-confident", seed), steps=600)
    assert distance > stuck_at

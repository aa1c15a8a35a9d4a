"""Ten thousand faults and five hundred kills: every job ends as what was done to it says.

Each batch lives as many lives as it takes to do its share. A life that goes wrong prints the command that
repeats it.
"""

from __future__ import annotations

import pytest

from tests.faults.life import live
from tests.faults.tally import TALLY

BATCHES = 25
FAULTS, KILLS = 10_000 // BATCHES, 500 // BATCHES
SEEDS = 1000
"""Of a batch: far more than it needs."""


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_job_ends_as_predicted_whatever_happens_to_the_operator(batch: int) -> None:
    faults = kills = 0
    for seed in range(batch * SEEDS, (batch + 1) * SEEDS):
        outcome = live(seed)
        TALLY.add(outcome)
        assert not outcome.wrong, outcome.report()
        faults, kills = faults + outcome.faults_met, kills + outcome.kills.total()
        if faults >= FAULTS and kills >= KILLS:
            break


def test_a_life_that_is_lived_again_is_the_same() -> None:
    first, again = live(7), live(7)
    assert first.fingerprint == again.fingerprint
    assert (first.story, first.faults) == (again.story, again.faults)

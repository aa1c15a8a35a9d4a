"""A minute of chaos: jobs and actors end as what was done to them says. Longer: `python -m e2e.chaos`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.chaos.campaign import Campaign, run_campaign
from e2e.cluster.layout import Layout
from e2e.release import Release

CAMPAIGN = Campaign(seed=1, seconds=60.0, least_jobs=10, least_strikes=15)


@pytest.mark.usefixtures("stoppable_programs")
@pytest.mark.timeout(1200, func_only=True)
def test_jobs_and_actors_end_as_what_was_done_to_them_says(
    release: Release, layout: Layout, progress: Callable[[str], None]
) -> None:
    outcome = run_campaign(CAMPAIGN, release, layout)
    progress(
        f"{CAMPAIGN.command}: {outcome.jobs} jobs {dict(outcome.verdicts)} under {dict(outcome.strikes)} "
        f"and {sum(outcome.api_faults.values())} API faults; {outcome.actors} actors, {dict(outcome.calls)}"
    )
    assert not outcome.wrong, "\n".join([f"repeat it with: {CAMPAIGN.command}", *outcome.wrong])
    # It was no quiet minute.
    assert outcome.jobs >= CAMPAIGN.least_jobs
    assert sum(outcome.strikes.values()) >= CAMPAIGN.least_strikes
    assert outcome.verdicts["Preemption"] > 0
    assert outcome.verdicts["Success"] > 0
    assert outcome.actors > 0
    assert outcome.calls["answers"] > 0
    assert outcome.calls["ActorDiedError"] + outcome.calls["ActorUnavailableError"] > 0

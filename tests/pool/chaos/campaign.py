"""One run of the chaos: the load of a seed under the faults of that seed, and the verdict on all of it."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from unittest.mock import patch

from fray.errors import StoreFullError
from fray.job import JobContext, create_job_ctx
from fray.runtime.pool.local_pool import SPILL_DIR
from tests.pool.chaos.disk import SmallDisk, small_disk
from tests.pool.chaos.injector import Injector
from tests.pool.chaos.inspection import leftovers, nanny_of, pool_of, settles, short, state_problem
from tests.pool.chaos.plan import Unit, faults, units
from tests.pool.chaos.run_log import RunLog, counts, lost_states, out_of_order, wrong_tallies
from tests.pool.chaos.units import PATIENCE, RETRIES, Load, Started

__all__ = ["Campaign", "Outcome", "run_campaign"]

WINDOW = 500
"""Units under way at once."""
CHECK_EVERY = 2_000
"""Units between two checks of the state machine's invariants."""
MEMORY = 24 * 1024**2
"""So little that objects are spilled all the time."""


@dataclass(frozen=True)
class Campaign:
    """What is to be run, and for how long at most: so many `tasks` (units), or `seconds`."""

    seed: int
    tasks: int
    seconds: float
    workers: int = 8
    fault_every: int = 120
    """Units between two faults, on average."""

    @property
    def command(self) -> str:
        """What runs the same again."""
        return (
            f"python -m tests.pool.chaos --seed {self.seed} --tasks {self.tasks} --seconds {self.seconds:g} "
            f"--workers {self.workers} --fault-every {self.fault_every}"
        )


@dataclass
class Outcome:
    """What came of a campaign. `wrong` says in words what must not be."""

    wrong: list[str] = field(default_factory=list)
    units: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    seconds: float = 0.0
    refused: int = 0
    """Units that had no room for a value while the disk was full."""
    faults: Counter[str] = field(default_factory=Counter)
    workers_killed: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        rate = self.units / self.seconds if self.seconds else 0.0
        blows = ", ".join(f"{blow} {count}" for blow, count in sorted(self.faults.items()))
        return (
            f"{self.units} units, {self.runs} runs in {self.seconds:.1f} s ({rate:.0f} units/s); "
            f"{self.workers_killed} workers killed ({blows}); {self.refused} without room; "
            f"{self.counters}; ignored: {self.ignored}"
        )


class _Run:
    def __init__(self, campaign: Campaign, log: RunLog, context: JobContext, disk: SmallDisk | None) -> None:
        self._campaign = campaign
        self._disk = disk
        self._log = log
        self._pool = pool_of(context)
        self._context = context
        self._load = Load(context, str(log.path))
        self._under_way: dict[int, Started] = {}
        self.outcome = Outcome()

    def run(self) -> Outcome:
        outcome, campaign = self.outcome, self._campaign
        start = time.monotonic()
        schedule = faults(campaign.seed, every=campaign.fault_every)
        injector = Injector(schedule, lambda: nanny_of(self._pool), self._disk)
        with injector:
            planned = islice(units(campaign.seed), campaign.tasks)
            for unit in planned:
                self._start(unit)
                if len(self._under_way) >= WINDOW:
                    self._finish_some(WINDOW // 10)
                    injector.note(outcome.units)
                if outcome.wrong or time.monotonic() - start > campaign.seconds:
                    break
            while self._under_way and not outcome.wrong:
                self._finish_some(len(self._under_way))
                injector.note(outcome.units)
        outcome.seconds = time.monotonic() - start
        outcome.faults.update({blow.value: count for blow, count in injector.done.items()})
        outcome.workers_killed = injector.deaths + self._load.deaths
        self._under_way.clear()
        self._load.drop_actors()
        if not outcome.wrong:
            self._judge_runs(injector.killed)
            self._judge_end()
        return outcome

    def _start(self, unit: Unit) -> None:
        began = time.monotonic()
        try:
            self._under_way[unit.key] = replace(self._load.start(unit), began=began)
        except StoreFullError as error:
            self._note_refusal(unit, error, began)

    def _note_refusal(self, unit: Unit, error: StoreFullError, began: float) -> None:
        if self._disk is not None and self._disk.was_full_since(began):
            self.outcome.refused += 1
        else:
            self.outcome.wrong.append(f"{unit}: {error}, though the disk had room")

    def _finish_some(self, number: int) -> None:
        """Verify so many units at least, or say what is wrong."""
        refs = {id(started.ref): started for started in self._under_way.values()}
        ready, _ = self._context.wait([each.ref for each in refs.values()], number, timeout=PATIENCE)
        if not ready:
            late = [started.unit for started in islice(self._under_way.values(), 5)]
            self.outcome.wrong.append(
                f"nothing ends any more; under way: {late}; {short(self._pool.stats())}"
            )
        for ref in ready:
            self._finish(refs[id(ref)])
            if self.outcome.wrong:
                return

    def _finish(self, started: Started) -> None:
        try:
            started.verify()
        except StoreFullError as error:
            self._note_refusal(started.unit, error, started.began)
        except Exception as error:  # noqa: BLE001 - whatever isn't expected is the finding
            self.outcome.wrong.append(f"{started.unit}: {type(error).__name__}: {error!s:.2000}")
        del self._under_way[started.unit.key]
        self.outcome.units += 1
        self.outcome.kinds[started.unit.kind.value] += 1
        if self.outcome.units % CHECK_EVERY == 0 and (problem := state_problem(self._pool)):
            self.outcome.wrong.append(f"after {self.outcome.units} units: {problem}")

    def _judge_runs(self, killed: Set[int]) -> None:
        runs = self._log.runs()
        self.outcome.runs = len(runs)
        # What a worker lost that the pool killed on purpose is tried again uncharged.
        doomed = frozenset(run.pid for run in runs if run.key in self._load.forced)
        for key, count in counts(runs, without=doomed).items():
            allowed = self._load.most_runs.get(key, RETRIES + 1)
            if count > allowed:
                self.outcome.wrong.append(f"task {key} ran {count} times, {allowed} were allowed")
        self.outcome.wrong += out_of_order(runs)
        self.outcome.wrong += wrong_tallies(runs, self._load.tallies)
        self.outcome.wrong += lost_states(runs, killed)

    def _judge_end(self) -> None:
        """Say what the pool keeps although nobody refers to anything, once it has settled."""
        gc.collect()
        wrong = self.outcome.wrong
        if not settles(lambda: not leftovers(self._pool)):
            wrong += [*leftovers(self._pool), short(self._pool.stats())]
        if problem := state_problem(self._pool):
            wrong.append(f"at the end: {problem}")
        stats = self._pool.stats()
        self.outcome.counters = dict(stats.counters)
        self.outcome.ignored = dict(stats.ignored)


def run_campaign(campaign: Campaign, folder: Path) -> Outcome:
    """Run a campaign in a pool of its own, with its log in `folder`."""
    log = RunLog.create(folder / "runs")
    with small_disk(folder / "disk") as disk:
        with patch.dict(os.environ, {} if disk is None else {SPILL_DIR: str(disk.path)}):
            context = create_job_ctx("pool", max_workers=campaign.workers, memory=MEMORY)
        assert isinstance(context, JobContext)
        try:
            return _Run(campaign, log, context, disk).run()
        finally:
            context.shutdown()

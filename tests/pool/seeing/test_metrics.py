"""A pool's metrics: Prometheus' own parser reads them, labels are bounded, and they say what happened."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fray.errors import InvalidOptionError
from fray.errors.transport import RefusalReason
from fray.job import JobContext, TaskOptions
from fray.job.pool import start_pool
from fray.runtime.pool.head.metrics import render_metrics
from fray.runtime.pool.machine.snapshot import HostStats, PoolStats
from tests.behaviour.gates import Gate, Signal

REFUSED: dict[Any, int] = dict.fromkeys(get_args(RefusalReason), 0)


def samples(text: str) -> dict[tuple[str, str], float]:
    """All samples by name and label value."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def a_pool(**more: Any) -> PoolStats:
    named: dict[str, Any] = {
        "tasks": {"running": 2, "kept": 7},
        "actors": {"alive": 1, "dead": 4},
        "hosts": {
            1: HostStats("a", (("CPU", 4.0), ("disk\n", 1.0)), (("CPU", -0.5),), 3, 1, 100, 20),
            2: HostStats('b"', (("CPU", 2.0),), (("CPU", 2.0),), 2, 0, 10**15 + 1, 0),
        },
        "objects": 12,
        "counters": {"submitted": 2_000_000_001, "done": 9, "cancelled": 3, "items": 5},
        "ignored": {"TaskDone: x": 2, "other": 1},
        "lineage_bytes": 512,
        "functions": (),
        "waits": (),
        "demand": (((("CPU", 2.0), ("mine", 1.0)), 3), ((("CPU", 1.0), ("GPU", 0.5)), 2)),
    }
    named |= more
    return PoolStats(
        **{key: MappingProxyType(value) if isinstance(value, dict) else value for key, value in named.items()}
    )


def test_the_parser_of_prometheus_reads_every_figure() -> None:
    found = samples(render_metrics(a_pool(), {**REFUSED, "oversized": 6}))
    expected = {
        ("fray_pool_tasks", "running"): 2,
        ("fray_pool_tasks", "ready"): 0,
        ("fray_pool_tasks_submitted_total", ""): 2_000_000_001,
        ("fray_pool_tasks_ended_total", "done"): 9,
        ("fray_pool_tasks_ended_total", "failed"): 0,
        ("fray_pool_tasks_ended_total", "cancelled"): 3,
        ("fray_pool_generator_items_total", ""): 5,
        ("fray_pool_workers", "joined"): 5,
        ("fray_pool_workers", "starting"): 1,
        ("fray_pool_hosts", ""): 2,
        ("fray_pool_cpus", "offered"): 6,
        ("fray_pool_cpus", "free"): 1.5,
        ("fray_pool_actors", "alive"): 1,
        ("fray_pool_demand", "CPU"): 8,
        ("fray_pool_demand", "GPU"): 1,
        ("fray_pool_demand", "memory"): 0,
        ("fray_pool_objects", ""): 12,
        ("fray_pool_object_bytes", "memory"): 10**15 + 101,
        ("fray_pool_object_bytes", "disk"): 20,
        ("fray_pool_lineage_bytes", ""): 512,
        ("fray_pool_refused_peers_total", "oversized"): 6,
        ("fray_pool_refused_peers_total", "wrong_key"): 0,
        ("fray_pool_ignored_events_total", ""): 3,
    }
    assert {key: found.get(key) for key in expected} == expected


def test_each_family_has_a_type_and_a_text_and_stands_once() -> None:
    text = render_metrics(a_pool(), REFUSED)
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families) == text.count("# TYPE ")
    for family in families:
        assert family.documentation.endswith(".")
        assert family.type == ("counter" if family.samples[0].name.endswith("_total") else "gauge")


def test_no_name_of_a_user_and_no_state_that_is_over_becomes_a_label() -> None:
    busy = a_pool(
        tasks={"running": 1, "kept": 5, "a name": 1},
        ignored={f"reason {number}": 1 for number in range(100)},
        counters={"submitted": 1, "mine": 2},
    )
    assert samples(render_metrics(busy, REFUSED)).keys() == samples(render_metrics(a_pool(), REFUSED)).keys()


# --- of a real pool ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool() -> Iterator[JobContext]:
    with start_pool(2) as ctx:
        yield ctx


def scrape(ctx: JobContext) -> dict[tuple[str, str], float]:
    command = ["curl", "--silent", "--fail", "--unix-socket", ctx.metrics_address, "http://pool/metrics"]
    return samples(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def fail() -> None:
    raise ValueError("no")


def ask_for_address() -> None:
    from fray.job import get_job_context  # noqa: PLC0415

    print(get_job_context().metrics_address)


def test_curl_reads_what_a_pool_does(tmp_path: Path) -> None:
    gate, started = Gate(tmp_path / "gate"), Signal(tmp_path / "signal")
    with start_pool(1) as ctx:
        running = ctx.run(block, gate, started)
        started.wait()
        ctx.wait([ctx.run(fail, options=TaskOptions(resources={"CPU": 0}))])
        found = scrape(ctx)
        gate.open()
        ctx.get(running)
        path = Path(ctx.metrics_address)
    assert found["fray_pool_tasks", "running"] == 1
    assert found["fray_pool_tasks_submitted_total", ""] == 2
    assert found["fray_pool_tasks_ended_total", "failed"] == 1
    assert found["fray_pool_workers", "joined"] == 1
    assert found["fray_pool_refused_peers_total", "malformed"] == 0
    assert not path.exists()


def block(gate: Gate, started: Signal) -> None:
    started.send()
    gate.pass_through()


def test_workers_have_no_address_of_metrics(pool: JobContext) -> None:
    with pytest.raises(InvalidOptionError, match="called in a worker"):
        pool.get(pool.run(ask_for_address))


def test_stats_are_a_table_for_people(pool: JobContext) -> None:
    pool.get([pool.run(len, "abc") for _ in range(1200)])
    while (stats := pool.stats()).workers < 2:
        time.sleep(0.001)  # one did all before the other was there
    assert (stats.workers, stats.running, stats.waiting) == (2, 0, 0)
    lines = dict(line.rsplit(maxsplit=1) for line in str(stats).splitlines())
    assert lines["workers"] == "2"
    assert lines["succeeded"] == f"{stats.succeeded:,}"
    assert int(lines["succeeded"].replace(",", "")) >= 1200
    assert {"blocked", "workers lost", "spilled bytes", "refused peers", "retried"} <= lines.keys()

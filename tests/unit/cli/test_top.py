"""`fray top`: what is shown of a pool, and when it ends."""

from __future__ import annotations

import json
import os
import pty
from dataclasses import replace
from pathlib import Path
from typing import cast

from fray.cli.streams import OutputStream
from fray.cli.top import MOST_ROWS, describe_pool, show_pool, watch_pool
from fray.cluster.base import Cluster
from fray.errors import HostNotRunningError
from fray.runtime.pool.machine.snapshot import FunctionStats, HostStats
from fray.runtime.pool.view import PoolView
from fray.types import JobId

WORDS = JobId("words")
HOST = HostStats("w-0", (("CPU", 4.0),), (("CPU", -1.0),), 3, 1, 3 * 1024**2, 0, copies=2048)
CLIENT = HostStats("rank-0", (("CPU", 8.0),), (("CPU", 8.0),), 0, 0, 0, 5)
SCORE = FunctionStats("score", 3, 1, 6.0, 5.0)
VIEW = PoolView(
    job="words",
    seconds=125.0,
    tasks={"waiting": 1, "ready": 1200, "sent": 34, "running": 4, "blocked": 2},
    actors={"pending": 0, "starting": 1, "alive": 2, "restarting": 0},
    counters={"submitted": 2000, "done": 700, "failed": 3, "cancelled": 0, "retried": 5},
    rates={"submitted": 1500.25, "ended": 12.0},
    hosts=(CLIENT, HOST),
    objects=12,
    functions=(SCORE,),
    waits=(),
)


class Jobs:
    """What `fray top` asks a cluster: one view after another, then the job has ended."""

    def __init__(self, *views: PoolView) -> None:
        self._views = iter(views)

    def read_pool(self, job_id: JobId) -> PoolView:
        view = next(self._views, None)
        if view is None:
            raise HostNotRunningError(job_id, 0, "the job has ended (Succeeded)")
        return view


def as_cluster(*views: PoolView) -> Cluster:
    return cast("Cluster", Jobs(*views))


def texts(view: PoolView) -> list[str]:
    return [line.text for line in describe_pool(view)]


def read_rest(terminal: int) -> bytes:
    """Return what a terminal still has whose other end is closed."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_a_pool_is_told_with_its_hosts_and_its_functions() -> None:
    assert texts(VIEW) == [
        "words  for 2 min 5 s",
        "tasks     4 running, 2 blocked",
        "queue     1,234 ready, 1 waiting for arguments",
        "ended     700 done, 3 failed, 0 cancelled",
        "again     5 retried, 0 rebuilt, 0 preempted",
        "rate      1,500.2/s submitted, 12.0/s ended",
        "workers   3 in 1 host, 1 starting",
        "slots     4, 0 free",
        "objects   12: 3.0 MiB in memory, 5 B spilled",
        "actors    1 starting, 2 alive",
        "",
        "HOST     SLOTS   FREE   WORKERS   MEMORY    SPILLED   COPIES",
        "w-0      4       0      3+1       3.0 MiB   0 B       2.0 KiB",
        "rank-0   8       8      0         0 B       5 B       0 B",
        "",
        "FUNCTION   DONE   FAILED   MEAN    LONGEST   IN ALL",
        "score      3      1        1.5 s   5.0 s     6.0 s",
    ]


def test_what_waits_for_room_is_told_by_its_shape() -> None:
    demand = (((("CPU", 2.0), ("GPU", 1.0)), 1200), ((("CPU", 8.0),), 3))
    line = "demand    1,200 x CPU: 2, GPU: 1; 3 x CPU: 8"
    assert line in texts(replace(VIEW, demand=demand))
    more = tuple((((f"kind-{number}", 1.0),), 1) for number in range(9))
    (line,) = (text for text in texts(replace(VIEW, demand=more)) if text.startswith("demand"))
    assert line.endswith("1 x kind-2: 1; ...")


def test_long_tables_are_cut_and_say_so() -> None:
    many = replace(
        VIEW,
        hosts=tuple(replace(HOST, name=f"w-{number}") for number in range(MOST_ROWS + 7)),
        functions=tuple(replace(SCORE, name=f"f{number}") for number in range(MOST_ROWS + 1)),
    )
    assert {"and 7 hosts more", "and 1 function more"} <= set(texts(many))
    assert len(texts(many)) < 3 * MOST_ROWS


def test_names_that_programs_choose_do_nothing_to_a_terminal() -> None:
    evil = "\x1b[2J\x1b]0;title\x07na\nme" + "x" * 1000
    host, function = replace(HOST, name=evil), replace(SCORE, name=evil)
    shown = texts(replace(VIEW, job=evil, hosts=(host,), functions=(function,), waits=(evil,)))
    assert all(line.isprintable() for line in shown)
    assert max(map(len, shown)) <= 200


def test_of_a_pool_without_anything_there_is_something_to_say() -> None:
    assert texts(replace(VIEW, hosts=(), functions=(), actors={}))[-1] == "actors    none"


def test_json_is_all_that_the_head_shows(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as file:
        show_pool(
            WORDS, as_json=True, cluster=as_cluster(VIEW), output=OutputStream(file.fileno(), environ={})
        )
    assert PoolView.from_json(path.read_text()) == VIEW
    assert json.loads(path.read_text())["hosts"][1]["free"] == {"CPU": -1.0}


def test_on_a_terminal_it_goes_on_until_the_job_has_ended(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    slept: list[float] = []
    with (tmp_path / "notes").open("wb") as notes:
        watch_pool(
            WORDS,
            cluster=as_cluster(VIEW, replace(VIEW, job="later")),
            output=OutputStream(theirs, environ={"TERM": "xterm"}),
            notes=OutputStream(notes.fileno(), environ={}),
            sleep=slept.append,
        )
    os.close(theirs)
    shown = b"".join(iter(lambda: read_rest(ours), b""))
    os.close(ours)
    assert slept == [2.0, 2.0]
    assert shown.index(b"words") < shown.index(b"later")
    assert "the job has ended (Succeeded)" in (tmp_path / "notes").read_text()

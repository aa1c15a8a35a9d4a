"""What the Trace Event Format demands of a file, as checks. It is Google's document of that name."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

__all__ = ["check_trace", "read_runs"]

METADATA = {
    "process_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
}


def check_trace(path: Path) -> dict[str, Any]:
    """Return the trace in a file, which must be one as "JSON Object Format" describes it."""
    trace: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(trace["traceEvents"], list)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    ends: defaultdict[tuple[int, int], int] = defaultdict(int)
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str)
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        assert event["ph"] in ("M", "X")
        if event["ph"] == "M":
            key, kind = METADATA[event["name"]]
            assert isinstance(event["args"][key], kind)
            continue
        assert isinstance(event["cat"], str)
        assert type(event["ts"]) is int
        assert type(event["dur"]) is int
        assert event["dur"] >= 0
        # "Complete events" of one thread nest or follow each other; here they follow.
        row = (event["pid"], event["tid"])
        assert event["ts"] >= ends[row]
        ends[row] = event["ts"] + event["dur"]
    named = {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert ends.keys() == named
    return trace


def read_runs(trace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the complete events that have a name."""
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["name"] == name]

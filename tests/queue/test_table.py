"""The state in memory stays small however long it is used."""

from __future__ import annotations

from fray.queue.table import LeaseTable


def test_renewals_and_expirations_leave_nothing_behind() -> None:
    table: LeaseTable[str] = LeaseTable()
    table.push("a")
    table.pop("lease", until=1.0, now=0.0)
    for step in range(10_000):
        table.renew("lease", until=step + 1.5, now=float(step))
        assert table.size(now=step + 0.5) == 0
    for step in range(20_000, 30_000, 10):
        table.renew("lease", until=step + 1.0, now=float(step))
        assert table.size(now=step + 5.0) == 1
    assert len(table._ends) < 200
    assert len(table._waiting) < 200
    assert table.done("lease") == "a"
    assert table.peek(now=40_000.0) is None
    assert not table._entries
    assert not table._leases
    assert not table._waiting

"""What completion shows of a context: what users call, and nothing else."""

from __future__ import annotations

from fray.job import create_job_ctx

USERS = {
    "as_completed",
    "cancel",
    "closed",
    "create_actor",
    "create_actor_group",
    "create_task",
    "gather",
    "get",
    "get_actor",
    "kill",
    "map",
    "metrics_address",
    "put",
    "run",
    "save_timeline",
    "shutdown",
    "starmap",
    "stats",
    "wait",
}


def test_completion_of_a_context_shows_users_names() -> None:
    with create_job_ctx("sync") as ctx:
        assert {name for name in dir(ctx) if not name.startswith("_")} == USERS


def test_a_notebook_shows_a_context_in_one_line() -> None:
    with create_job_ctx("sync") as ctx:
        shown = ctx._repr_html_()
        assert shown.startswith("<code>JobContext</code> sync-")
        assert shown.endswith(", open")
    assert ctx._repr_html_().endswith(", closed")
    assert "\n" not in shown

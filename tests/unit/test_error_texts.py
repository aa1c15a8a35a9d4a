"""How errors make their texts of templates and fields."""

from __future__ import annotations

from fray import errors


def test_what_stands_in_a_field_is_never_read_as_a_template() -> None:
    error = errors.TaskCancelledError("{secret} {0.__class__}")
    assert error.message == "task '{secret} {0.__class__}' was cancelled"


def test_lists_lines_and_sizes_have_one_form_each() -> None:
    story = ("sent to worker 1", "worker 1 ended")
    assert str(errors.ObjectLostError("o1", "its host left", story)).startswith(
        "object o1 is lost: its host left\n  sent to worker 1\n  worker 1 ended\n"
    )
    parts = (("data.bin", 8_500_000), ("model.py", 100_000))
    large = errors.WorkspaceTooLargeError("/work", 9_000_000, 8_000_000, parts, "Secrets")
    assert large.message == (
        "workspace /work takes 9.0 MB, more than 8.0 MB for Secrets; "
        "the largest files: data.bin (8.5 MB), model.py (0.1 MB)"
    )


def test_a_time_limit_is_raised_where_it_was_set() -> None:
    next_step = errors.TaskTimeoutError("Counter.add", 0.3).next_step
    assert "TaskOptions.timeout of a task" in next_step
    assert "handle.method.options(timeout=...) of an actor's call" in next_step


def test_who_meets_an_actor_that_was_started_again_is_told_to_call_it() -> None:
    died = errors.ActorDiedError("counter", "its worker exited with code 3, and it was restarted")
    assert died.next_step.startswith("Where it was started again, call it again, ")
    assert "by a new handle of get_actor(NAME); else create it" in died.next_step

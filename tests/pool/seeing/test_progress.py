"""Progress of long calls: what is counted, what is shown when, and that nothing is left on the screen."""

from __future__ import annotations

import io
import sys
import threading
from typing import Any

import pytest
from rich.console import Console

from fray.errors import PoolClosedError, SettingError
from fray.job import create_job_ctx
from fray.job.progress import FutureState, MapWatch, Progress, Watch, describe, total_of
from fray.job.progress_bar import ERASE_LINE, BarPainter
from fray.job.progress_display import LinePainter, ProgressDisplay, choose_mode
from fray.job.progress_notebook import NotebookPainter, is_notebook


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Scripted:
    """A context whose futures are numbers: those below `ready` are there, `failed` ones have failed."""

    def __init__(self) -> None:
        self.ready = 0
        self.failed: set[int] = set()
        self.running = 2
        self.closed = False
        self.looks = 0

    def state_of(self, future: Any, *, whole: bool) -> FutureState:
        assert isinstance(whole, bool)
        self.looks += 1
        if future in self.failed:
            return "failed"
        return "ready" if future < self.ready else "pending"

    def count_running(self) -> int:
        if self.closed:
            raise PoolClosedError("the pool")
        return self.running


class Painted:
    """A painter that remembers; empty when nothing is on the screen."""

    delay = 1.0
    interval = 60.0

    def __init__(self) -> None:
        self.shown: list[Progress] = []

    def paint(self, progress: Progress) -> None:
        self.shown.append(progress)

    def clear(self) -> None:
        self.shown.clear()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# --- what is counted ---------------------------------------------------------------------------------------


def test_a_watch_counts_and_tells_the_rate_since_its_first_look() -> None:
    context = Scripted()
    context.ready = 40  # long before the call
    watch = Watch("get", context, range(100), began=0.0)
    assert watch.survey(0.5) == Progress("get", 40, 100, 0, 2, 0.5, None)
    context.ready, context.failed = 60, {90}
    found = watch.survey(4.5)
    assert found == Progress("get", 61, 100, 1, 2, 4.5, 21 / 4)
    assert found.remaining == pytest.approx(39 / (21 / 4))


def test_what_is_ready_is_not_looked_at_again() -> None:
    context = Scripted()
    context.ready = 900
    watch = Watch("get", context, range(1000), began=0.0)
    watch.survey(1.0)
    context.looks = 0
    watch.survey(2.0)
    assert context.looks == 100


def test_wait_is_done_when_enough_are_ready() -> None:
    context = Scripted()
    context.ready = 8
    watch = Watch("wait", context, range(100), 10, began=0.0)
    assert (watch.survey(1.0).done, watch.survey(1.0).total) == (8, 10)
    context.ready = 50
    assert (watch.survey(2.0).done, watch.survey(2.0).total) == (10, 10)
    assert Watch("wait", context, range(3), 10, began=0.0).survey(1.0).total == 3


def test_map_counts_what_was_taken() -> None:
    watch = MapWatch(Scripted(), 9, began=0.0)
    for item in range(5):
        assert watch.hand_out(item) == item
        watch.resume()
    assert watch.survey(1.0) == Progress("map", 5, 9, 0, 2, 1.0, None)
    watch.hand_out(5)
    assert watch.survey(2.0).done == 6


def test_a_context_that_has_ended_runs_nothing_that_is_known() -> None:
    context = Scripted()
    context.closed = True
    assert Watch("get", context, range(2), began=0.0).survey(1.0).running is None


def test_lengths_that_are_not_known() -> None:
    assert total_of([range(5), "abc"]) == 3
    assert total_of([range(5), iter("abc")]) is None
    assert total_of([]) is None


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress("get", 5, 20, 0, 2, 65.0, 0.5), "5/20  0.5/s  2 running  1:05  0:30 left"),
        (Progress("get", 5, 20, 3, None, 3725.0, None), "5/20  3 failed  1:02:05"),
        (Progress("map", 5, None, 0, 1, 0.4, 2.0), "5  2.0/s  1 running  0:00"),
        (Progress("get", 5, 20, 0, 0, 9.0, 0.0), "5/20  0.0/s  0 running  0:09"),
    ],
)
def test_the_figures_as_text(progress: Progress, text: str) -> None:
    assert describe(progress) == text


@pytest.mark.parametrize("kind", ["sync", "threadpool", "pool"])
def test_contexts_tell_how_far_their_futures_are(kind: str) -> None:
    with create_job_ctx(kind, max_workers=1) as ctx:
        done, failed = ctx.run(identity, 1), ctx.run(fail)
        ctx.wait([done, failed], num_returns=2)
        assert ctx._survey.state_of(done, whole=True) == "ready"
        assert ctx._survey.state_of(failed, whole=True) == "failed"
        assert ctx._survey.state_of("no future", whole=True) == "ready"
        assert ctx._survey.count_running() == 0


@pytest.mark.parametrize("kind", ["threadpool", "pool"])
def test_a_generator_is_ready_for_wait_before_it_has_ended(kind: str) -> None:
    with create_job_ctx(kind, max_workers=1) as ctx:
        items = ctx.run(endless)
        ctx.wait([items])
        assert ctx._survey.state_of(items, whole=False) == "ready"
        assert ctx._survey.state_of(items, whole=True) == "pending"
        assert ctx._survey.count_running() <= 1
        ctx.cancel(items)


def identity(value: Any) -> Any:
    return value


def fail() -> None:
    raise ValueError("no")


def endless() -> Any:
    while True:
        yield 1


# --- what is shown when ------------------------------------------------------------------------------------


def test_a_call_shows_once_it_has_waited_long_enough_and_goes_at_its_end() -> None:
    clock, painter = Clock(), Painted()
    display = ProgressDisplay(painter, clock=clock)
    with display.show(Watch("get", Scripted(), range(3), began=clock.now)):
        display.refresh()
        assert not painter.shown
        clock.now += 1.0
        display.refresh()
        (shown,) = painter.shown
        assert (shown.done, shown.total, shown.rate) == (0, 3, 0.0)
    assert not painter.shown
    display.end()


def test_a_look_counts_by_what_it_works_not_by_what_it_waits() -> None:
    clock, work = Clock(), Clock()

    class Slow(Scripted):
        def count_running(self) -> int:
            clock.now += 60  # the head was busy
            work.now += 0.25
            return super().count_running()

    display = ProgressDisplay(Painted(), clock=clock, work_clock=work)
    with display.show(Watch("get", Slow(), range(3), began=clock.now - 5)):
        assert display.refresh() == pytest.approx(0.25)
    display.end()


def test_what_has_waited_longest_shows_alone() -> None:
    clock, painter = Clock(), Painted()
    display = ProgressDisplay(painter, clock=clock)
    with display.show(Watch("get", Scripted(), range(3), began=clock.now)):
        with display.show(Watch("wait", Scripted(), range(3), began=clock.now)):
            clock.now += 5
            display.refresh()
            assert [progress.what for progress in painter.shown] == ["get"]
        assert painter.shown  # the end of the other doesn't change that
    assert not painter.shown
    display.end()


def test_an_exception_leaves_nothing_on_the_screen() -> None:
    clock, painter = Clock(), Painted()
    display = ProgressDisplay(painter, clock=clock)
    seen: list[Progress] = []

    def interrupt() -> None:
        display.refresh()
        seen.extend(painter.shown)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), display.show(Watch("get", Scripted(), range(3), began=0.0)):
        interrupt()
    assert seen
    assert not painter.shown
    display.refresh()
    assert not painter.shown
    display.end()


def test_a_map_hides_while_its_caller_is_at_an_item(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, painter = Clock(), Painted()
    monkeypatch.setattr("fray.job.progress.time.monotonic", clock)
    display = ProgressDisplay(painter, clock=clock)
    watch = MapWatch(Scripted(), 3)
    with display.show(watch):
        clock.now += 2
        display.refresh()
        assert painter.shown
        watch.hand_out(0)
        clock.now += 0.5
        display.refresh()
        assert painter.shown
        clock.now += 1
        display.refresh()
        assert not painter.shown
        watch.resume()
        display.refresh()
        assert painter.shown
    display.end()


def test_a_terminal_that_is_gone_ends_the_showing_and_nothing_else() -> None:
    class Gone(Painted):
        def paint(self, progress: Progress) -> None:
            super().paint(progress)
            raise OSError(5, "Input/output error")

    painter = Gone()
    display = ProgressDisplay(painter, clock=Clock())
    with display.show(Watch("get", Scripted(), range(3), began=0.0)):
        display.refresh()
        display.refresh()
        assert len(painter.shown) == 1


def test_the_thread_ends_with_the_board() -> None:
    before = threading.enumerate()
    display = ProgressDisplay(Painted())
    with display.show(Watch("get", Scripted(), range(3))):
        (thread,) = [each for each in threading.enumerate() if each not in before]
    display.end()
    thread.join()


@pytest.mark.parametrize(
    ("wish", "stream", "mode"),
    [
        ("", Terminal(), "bar"),
        ("", io.StringIO(), "off"),
        ("", None, "off"),
        ("0", Terminal(), "off"),
        ("1", Terminal(), "bar"),
        ("1", io.StringIO(), "lines"),
    ],
)
def test_where_it_shows(wish: str, stream: io.StringIO | None, mode: str) -> None:
    assert choose_mode({"FRAY_PROGRESS": wish} if wish else {}, stream) == mode


@pytest.mark.parametrize(("wish", "mode"), [("", "notebook"), ("1", "notebook"), ("0", "off")])
def test_a_notebook_shows_a_bar_of_its_own(wish: str, mode: str) -> None:
    assert choose_mode({"FRAY_PROGRESS": wish}, io.StringIO(), notebook=True) == mode


def test_a_wish_without_meaning_is_refused() -> None:
    with pytest.raises(SettingError, match="legal are 0"):
        choose_mode({"FRAY_PROGRESS": "yes"}, None)


def test_a_closed_stream_is_no_terminal() -> None:
    closed = Terminal()
    closed.close()
    assert choose_mode({}, closed) == "off"


# --- how it looks ------------------------------------------------------------------------------------------


def test_lines_for_logs() -> None:
    stream = io.StringIO()
    painter = LinePainter(stream)
    painter.paint(Progress("get", 5, 20, 0, 2, 65.0, 0.5))
    painter.clear()
    assert stream.getvalue() == "get  5/20  0.5/s  2 running  1:05  0:30 left\n"


@pytest.mark.parametrize("width", [20, 40, 200])
def test_the_bar_stays_on_its_line_however_narrow_the_terminal_is(width: int) -> None:
    screen = Terminal()
    painter = BarPainter(Console(file=screen, force_terminal=True, width=width, color_system=None))
    for done in (0, 10, 20):
        painter.paint(Progress("get", done, 20, 1, 2, 65.0, 0.5))
    painter.clear()
    painter.clear()
    text = screen.getvalue()
    assert "\n" not in text
    assert text.endswith(ERASE_LINE)
    drawn = [part for part in text.split(ERASE_LINE) if part]
    assert len(drawn) == 3
    assert all("\x1b" not in part and len(part) <= width for part in drawn)
    if width == 200:
        assert "20/20" in drawn[-1]


def test_a_map_of_unknown_length_has_a_bar_too() -> None:
    screen = Terminal()
    painter = BarPainter(Console(file=screen, force_terminal=True, width=100, color_system=None))
    painter.paint(Progress("map", 7, None, 0, None, 65.0, None))
    assert "map" in screen.getvalue()
    assert "7  1:05" in screen.getvalue()


def test_a_terminal_without_cursor_control_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    screen = Terminal()
    painter = BarPainter(Console(file=screen))
    painter.paint(Progress("get", 7, 9, 0, None, 65.0, None))
    painter.clear()
    assert screen.getvalue() == ""


class FrontEnd:
    """Stands for IPython: keeps what each display shows."""

    def __init__(self, *, kernel: object) -> None:
        self.shown: list[str] = []
        self.HTML = str
        self._shell = type("Shell", (), {"kernel": kernel})()

    def get_ipython(self) -> object:
        return self._shell

    def display(self, content: str, *, display_id: bool) -> FrontEnd.Display:
        assert display_id
        self.shown.append(content)
        return self.Display(self, len(self.shown) - 1)

    class Display:
        def __init__(self, front_end: FrontEnd, place: int) -> None:
            self._front_end, self._place = front_end, place

        def update(self, content: str) -> None:
            self._front_end.shown[self._place] = content


def test_in_a_notebook_each_call_has_one_display_which_ends_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    front_end = FrontEnd(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", front_end)
    monkeypatch.setitem(sys.modules, "IPython.display", front_end)
    assert is_notebook()
    painter = NotebookPainter()
    painter.clear()
    painter.paint(Progress("<get>", 5, 20, 0, 2, 65.0, 0.5))
    painter.paint(Progress("<get>", 6, 20, 0, 2, 66.0, 0.5))
    figures = "6/20  0.5/s  2 running  1:06  0:28 left"
    bar = '<progress value="6" max="20"></progress>'
    assert front_end.shown == [f"<code>&lt;get&gt;</code> {bar} <code>{figures}</code>"]
    painter.clear()
    painter.paint(Progress("map", 7, None, 0, None, 65.0, None))
    assert front_end.shown == ["", "<code>map</code> <progress></progress> <code>7  1:05</code>"]


def test_a_shell_in_a_terminal_and_no_shell_are_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", FrontEnd(kernel=None))
    assert not is_notebook()
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert not is_notebook()

"""A callable runs in its pod as a script would, and its end reaches who asks for it."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fray.errors import OutcomeUnreadableError, RemoteTracebackError
from fray.payload.callables import MAGIC, Payload, encode_callable
from fray.payload.outcome import OUTCOME_LIMIT, Outcome, decode_outcome
from fray.payload.staging import FsspecStorage, staged_outcome_url, staged_url
from fray.payload.stamp import Stamp
from fray.runtime.identity import current_identity
from fray.runtime.outcome_report import Reporter
from fray.termination import Ending, TerminationMessage
from tests.unit.runtime.pythons import find_other_python
from tests.unit.runtime.started import Ended, Pod, bare_paths, run_script

OUTSIDE = {name: value for name, value in os.environ.items() if not name.startswith("FRAY_")}
RANK_1 = {
    "FRAY_JOB_NAME": "train",
    "FRAY_ATTEMPT": "2",
    "FRAY_SLICE": "0",
    "FRAY_NUM_SLICES": "1",
    "FRAY_HOST": "1",
    "FRAY_HOSTS_PER_SLICE": "4",
    "FRAY_COORDINATOR_ADDRESS": "host-0:8476",
}
RETURNED_NONE = TerminationMessage(Ending.RETURNED, "NoneType", sha256=hashlib.sha256(b"").hexdigest())


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path, environ=dict(OUTSIDE))


def add(left: int, right: int) -> int:
    print("adding", sys.argv[1:])
    return left + right


def test_a_value_comes_back(pod: Pod) -> None:
    ended = pod.call(add, 2, right=3)
    assert (ended.code, ended.out, ended.err) == (0, "adding []\n", "")
    assert ended.outcome.result() == 5
    assert ended.message is not None
    assert (ended.message.ending, ended.message.type) == (Ending.RETURNED, "int")


class BoomError(Exception):
    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code


def fail(code: int) -> None:
    print("failing")
    raise BoomError("no way", code=code)


def test_an_exception_comes_back_with_its_type_and_the_traceback_is_the_users_own(pod: Pod) -> None:
    ended = pod.call(fail, 7)
    assert (ended.code, ended.out) == (1, "failing\n")
    assert ended.err.startswith("Traceback (most recent call last):\n")
    assert "fray/runtime" not in ended.err
    assert ended.err.rstrip().endswith("BoomError: no way")
    with pytest.raises(BoomError, match="no way") as caught:
        ended.outcome.result()
    assert caught.value.code == 7
    assert isinstance(caught.value.__cause__, RemoteTracebackError)
    assert ended.message is not None
    assert ended.message.ending is Ending.RAISED
    assert ended.message.type.endswith("BoomError")
    assert ended.message.message == "no way"
    assert ended.message.traceback.rstrip() == ended.err.rstrip()


def make_large(size: int) -> bytes:
    return b"x" * size


def test_a_value_beyond_the_limit_goes_behind_the_staging_url(pod: Pod, tmp_path: Path) -> None:
    pod.results = (tmp_path / "staging").as_uri()
    ended = pod.call(make_large, OUTCOME_LIMIT + 1)
    assert (ended.code, ended.err, ended.outcome_data) == (0, "", None)
    assert ended.message is not None
    data = FsspecStorage().read(staged_outcome_url(pod.results, ended.message.sha256))
    assert decode_outcome(data, sha256=ended.message.sha256).result() == make_large(OUTCOME_LIMIT + 1)


def test_a_small_value_stays_where_it_was(pod: Pod, tmp_path: Path) -> None:
    pod.results = (tmp_path / "staging").as_uri()
    assert pod.call(add, 2, right=3).outcome.result() == 5
    assert not (tmp_path / "staging").exists()


def test_a_staging_url_that_takes_nothing_costs_the_value_and_no_more(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "staging").touch()
    pod.results = (tmp_path / "staging").as_uri()
    ended = pod.call(make_large, OUTCOME_LIMIT + 1)
    assert ended.code == 0
    assert "fray: payload at file://" in ended.err
    with pytest.raises(OutcomeUnreadableError, match="1,000,000 fit"):
        ended.outcome.result()


def leave(code: Any) -> None:
    sys.exit(code)


@pytest.mark.parametrize(
    ("code", "expected", "err"), [(None, 0, ""), (0, 0, ""), (3, 3, ""), ("all wrong", 1, "all wrong\n")]
)
def test_sys_exit_means_what_it_means_in_a_script(pod: Pod, code: Any, expected: int, err: str) -> None:
    ended = pod.call(leave, code)
    assert (ended.code, ended.err) == (expected, err)
    assert ended.message == TerminationMessage(Ending.EXITED, "SystemExit", str(code))
    assert ended.outcome_data is None


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_is_told_by_the_usual_exit_code(pod: Pod) -> None:
    ended = pod.call(interrupt)
    assert ended.code == 130
    assert ended.err.rstrip().endswith("KeyboardInterrupt")


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


def test_a_coroutine_function_is_run_to_its_end(pod: Pod) -> None:
    assert pod.call(answer).outcome.result() == 42


def leave_a_thread_behind() -> None:
    def outlive_main() -> None:
        threading.main_thread().join()
        print("thread")

    atexit.register(print, "atexit")
    threading.Thread(target=outlive_main).start()
    print("main")


def test_threads_and_atexit_functions_run_to_their_end(pod: Pod) -> None:
    ended = pod.call(leave_a_thread_behind)
    assert (ended.code, ended.out.split()) == (0, ["main", "thread", "atexit"])


def fork_and_return() -> str | None:
    child = os.fork()
    if child == 0:
        return "child"
    os.waitpid(child, 0)
    return None


def fork_and_raise() -> None:
    child = os.fork()
    if child == 0:
        raise ValueError("of the child")
    os.waitpid(child, 0)


@pytest.mark.parametrize("function", [fork_and_return, fork_and_raise])
def test_a_fork_that_comes_back_tells_nothing(pod: Pod, function: Callable[[], object]) -> None:
    ended = pod.call(function)
    assert (ended.code, ended.outcome_data) == (0, b"")
    assert ended.message == RETURNED_NONE


def break_the_streams() -> None:
    sys.excepthook = None  # type: ignore[assignment]
    sys.stdout.close()
    raise ValueError("seen all the same")


def test_the_end_is_told_whatever_the_callable_has_broken(pod: Pod) -> None:
    ended = pod.call(break_the_streams)
    assert ended.code == 1
    assert "seen all the same" in ended.err
    assert str(ended.outcome.error) == "seen all the same"


def who() -> tuple[int, int, str]:
    identity = current_identity()
    return identity.rank, identity.world_size, identity.job


def test_only_rank_0_hands_over_its_value(pod: Pod) -> None:
    pod.environ |= RANK_1
    ended = pod.call(who)
    assert (ended.code, ended.outcome_data) == (0, None)
    assert ended.message == TerminationMessage(Ending.RETURNED, "tuple")


def test_rank_0_has_the_jobs_identity(pod: Pod) -> None:
    pod.environ |= {**RANK_1, "FRAY_HOST": "0"}
    assert pod.call(who).outcome.result() == (0, 4, "train")


def test_every_rank_hands_over_its_exception(pod: Pod) -> None:
    pod.environ |= RANK_1
    error = pod.call(fail, 1).outcome.error
    assert isinstance(error, BoomError)
    assert isinstance(error.__cause__, RemoteTracebackError)
    assert error.__cause__.worker == "rank 1 of job train, attempt 2"


def test_a_broken_identity_costs_the_outcome_only(pod: Pod) -> None:
    pod.environ |= {**RANK_1, "FRAY_HOST": "9"}
    ended = pod.call(add, 1, 2)
    assert (ended.code, ended.outcome_data) == (0, None)
    assert "FRAY_HOST" in ended.err


def nothing() -> None: ...


def test_none_is_kept_in_no_bytes(pod: Pod) -> None:
    ended = pod.call(nothing)
    assert (ended.outcome_data, ended.message) == (b"", RETURNED_NONE)
    assert ended.outcome == Outcome()


def unsendable() -> Any:
    return threading.Lock()


def test_a_value_that_cannot_be_pickled_is_no_failure(pod: Pod) -> None:
    ended = pod.call(unsendable)
    assert ended.code == 0
    assert "isn't kept whole: result can't be pickled" in ended.err
    assert "can't be pickled" in ended.outcome.problem


def test_outside_of_pods_no_termination_log_is_made(pod: Pod) -> None:
    pod.kubelet = False
    ended = pod.call(add, 1, 2)
    assert (ended.code, ended.message) == (0, None)


SCRIPT = """
import dataclasses, enum, functools, pathlib, pickle, sys
from fray.payload.callables import encode_callable
from fray.payload.chunks import split_payload
import beside

class Colour(enum.Enum):
    RED = 1

@dataclasses.dataclass
class Config:
    number: int
    colour: Colour = Colour.RED

    def run(self, by):
        again = pickle.loads(pickle.dumps(self))
        assert type(again) is Config and again == self and again.colour is Colour.RED
        assert type(self).__module__ == "__main__" and isinstance(sys.modules["__main__"].Config, type)
        return scaled(again.number) * by

@functools.cache
def scaled(number):
    return beside.double(number)

payload = encode_callable(functools.partial(Config(5).run, by=2))
directory = pathlib.Path(sys.argv[1])
directory.mkdir()
for part in split_payload(payload.data, secret_name="payload"):
    (directory / part.key).write_bytes(part.data)
print(payload.sha256)
"""


def launch_script(pod: Pod, path: Path) -> str:
    path.mkdir()
    (path / "beside.py").write_text("def double(number):\n    return 2 * number\n")
    return run_script(
        SCRIPT, [str(pod.directory / "payload")], pod.environ, python=pod.python, path=path / "launch.py"
    )


def test_a_script_and_the_modules_beside_it_run_where_neither_is(pod: Pod, tmp_path: Path) -> None:
    """Classes of `__main__` can be pickled there, as multiprocessing and checkpoints do."""
    digest = launch_script(pod, tmp_path / "scripts")
    ended = pod.end(pod.start(digest))
    assert (ended.code, ended.err) == (0, "")
    assert ended.outcome.result() == 20


def test_no_package_but_cloudpickle_is_needed(pod: Pod, tmp_path: Path) -> None:
    pod.environ["PYTHONPATH"] = bare_paths(tmp_path / "bare")
    pod.flags = ("-S",)  # no site-packages
    assert pod.call(add, 2, 3).outcome.result() == 5


def other_python(tmp_path: Path) -> Pod:
    python = find_other_python()
    if python is None:
        pytest.skip("this machine has no other Python from 3.11 on")
    environ = {**OUTSIDE, "PYTHONPATH": bare_paths(tmp_path / "bare")}
    return Pod(tmp_path, python=python, environ=environ)


def test_another_python_refuses_what_this_one_pickled(tmp_path: Path) -> None:
    pod = other_python(tmp_path)
    ended = pod.call(add, 2, 3)
    assert ended.code == 116
    assert f"pickled by Python {sys.version_info.major}.{sys.version_info.minor}" in ended.err
    assert ended.message is not None
    assert (ended.message.ending, ended.message.type) == (Ending.NEVER_RAN, "PayloadPythonError")


def test_another_python_runs_what_it_pickled_itself(tmp_path: Path) -> None:
    pod = other_python(tmp_path)
    digest = launch_script(pod, tmp_path / "scripts")
    here = run_script(
        "import sys; print('%d.%d' % sys.version_info[:2])", [], {}, python=pod.python, path=tmp_path / "v.py"
    )
    ended = pod.end(pod.start(digest, python=here))
    assert (ended.code, ended.err) == (0, "")
    assert f"made by python {here}" in ended.outcome.problem


def test_a_staged_payload_is_read_through_fsspec(pod: Pod) -> None:
    payload = encode_callable(add, (2, 3))
    url = staged_url(f"file://{pod.directory}/stage", payload.sha256)
    FsspecStorage().write(url, payload.data)
    assert pod.end(pod.start(payload.sha256, place=url)).outcome.result() == 5


def with_body(body: bytes) -> Payload:
    return Payload(MAGIC + Stamp.here().to_json().encode() + b"\n" + body, "", Stamp.here(), "f")


@pytest.mark.parametrize(
    ("made", "changes", "code", "told"),
    [
        (None, {}, 114, "no payload is mounted there"),
        (None, {"place": "file:///no/such/object"}, 114, "no payload is there"),
        (None, {"place": "nothing://bucket/object"}, 114, "nothing://bucket/object"),
        (encode_callable(add, (1, 2)), {"sha256": "0" * 64}, 115, "nothing of it was run"),
        (encode_callable(add, (1, 2)), {"python": "3.99"}, 116, "Use an image with Python 3.99"),
        (with_body(b"cabsent_package\nrun\n."), {}, 117, "Add absent_package to the job's packages"),
        (with_body(b"I1\n."), {}, 118, "cannot unpack non-iterable int"),
    ],
)
def test_what_must_not_run_is_told_by_its_exit_code(
    pod: Pod, made: Payload | None, changes: dict[str, str], code: int, told: str
) -> None:
    (pod.directory / "payload").mkdir()
    if made is not None:
        (pod.directory / "payload" / "payload-000").write_bytes(made.data)
    digest = hashlib.sha256(made.data if made else b"").hexdigest()
    ended = pod.end(pod.start(**{"sha256": digest, **changes}))
    assert (ended.code, ended.out) == (code, "")
    assert told in ended.err
    assert ended.message is not None
    assert ended.message.ending is Ending.NEVER_RAN
    assert told in ended.message.message
    assert ended.outcome_data is None


def with_module(pod: Pod, text: str) -> Payload:
    """Return a payload whose reading imports a module with this text."""
    (pod.directory / "modules").mkdir()
    (pod.directory / "modules" / "script_of_a_user.py").write_text(text + "\ndef run(): ...\n")
    pod.environ["PYTHONPATH"] = str(pod.directory / "modules")
    data = with_body(b"(cscript_of_a_user\nrun\n(t}t.}.").data  # run(), and nothing of __main__
    return Payload(data, hashlib.sha256(data).hexdigest(), Stamp.here(), "run")


def read_with_module(pod: Pod, text: str) -> Ended:
    made = with_module(pod, text)
    pod.mount(made)
    return pod.end(pod.start(made.sha256))


@pytest.mark.parametrize("code", ["0", "None", "3", "'all wrong'"])
def test_a_module_that_ends_the_process_when_it_is_imported_is_no_success(pod: Pod, code: str) -> None:
    ended = read_with_module(pod, f"import sys\nprint('main')\nsys.exit({code})")
    assert (ended.code, ended.out) == (118, "main\n")
    assert "script_of_a_user.py" in ended.err, "the traceback names it"
    assert f"sys.exit({code})" in ended.err
    assert ended.message is not None
    assert (ended.message.ending, ended.message.type) == (Ending.NEVER_RAN, "PayloadExitError")
    assert "if __name__ == '__main__'" in ended.message.message


def test_sigterm_while_modules_are_imported_is_no_success_whatever_they_make_of_it(pod: Pod) -> None:
    leaving = "try:\n    os.kill(os.getpid(), signal.SIGTERM)\nexcept SystemExit:\n    sys.exit(0)"
    ended = read_with_module(pod, f"import os, signal, sys\n{leaving}")
    assert ended.code == 143
    assert ended.message == TerminationMessage(Ending.EXITED, "SystemExit", "143")


def test_a_fork_that_a_module_makes_when_it_is_imported_tells_nothing(pod: Pod) -> None:
    forking = "child = os.fork()\nif not child:\n    sys.exit(7)\nprint(os.waitpid(child, 0)[1] >> 8)"
    ended = read_with_module(pod, f"import os, sys\n{forking}")
    assert (ended.code, ended.out) == (0, "7\n")
    assert ended.message == RETURNED_NONE


class Unkeepable:
    """Pickling it does what nobody expects of a value."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __reduce__(self) -> str:
        raise self.kind(7)


def return_what_is_unkeepable(kind: type[BaseException]) -> Any:
    return Unkeepable(kind)


def test_a_value_that_ends_the_process_when_it_is_pickled_is_no_failure(pod: Pod) -> None:
    ended = pod.call(return_what_is_unkeepable, SystemExit)
    assert (ended.code, ended.outcome_data) == (0, None)
    assert "isn't kept: 7" in ended.err
    assert ended.message is not None
    assert ended.message.ending is Ending.RETURNED


def test_a_place_that_no_file_can_have_costs_the_outcome_only(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "log").touch()
    Reporter(Path("a\0b"), tmp_path / "log").returned(5)
    assert "isn't kept: " in capsys.readouterr().err
    message = TerminationMessage.from_json((tmp_path / "log").read_text())
    assert message == TerminationMessage(Ending.RETURNED, "int")

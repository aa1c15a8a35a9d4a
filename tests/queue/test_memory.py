"""What only the queue in memory must stand: to be carried to another process, where it can't work."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from fray.errors import QueueNotSharedError
from fray.queue import MemoryQueue


def test_unpickling_in_another_process_is_refused(tmp_path: Path) -> None:
    queue: MemoryQueue[str] = MemoryQueue()
    path = tmp_path / "queue.pickle"
    path.write_bytes(pickle.dumps(queue))
    code = (
        "import pickle, sys; from pathlib import Path; from fray.errors import QueueNotSharedError\n"
        "try: pickle.loads(Path(sys.argv[1]).read_bytes())\n"
        "except QueueNotSharedError as error: print(error.pid)"
    )
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert int(run.stdout) == os.getpid()


def test_a_forked_child_is_refused_before_it_can_repeat_an_item() -> None:
    queue: MemoryQueue[str] = MemoryQueue()
    queue.push("a")
    pickled = pickle.dumps(queue)
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (queue.pop, queue.size, lambda: pickle.loads(pickled)):
            try:
                use()
            except QueueNotSharedError:
                refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert queue.size() == 1


def test_a_queue_that_is_gone_isnt_found_again() -> None:
    pickled = pickle.dumps(MemoryQueue[str]())
    with pytest.raises(QueueNotSharedError):
        pickle.loads(pickled)

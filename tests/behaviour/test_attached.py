"""What a worker of a job does first: make one context that of the whole process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, threading
from fray.job import SyncContext, create_job_ctx, fray_job_ctx, get_job_context
from fray.job.defaults import attach_process

own = get_job_context()
attached = SyncContext()
attach_process(attached)
assert get_job_context() is attached is create_job_ctx("auto") is fray_job_ctx()
child = os.fork()
if not child:
    # What was attached here belongs to the parent; the child makes its own.
    os._exit(0 if get_job_context() is not attached and create_job_ctx("auto") is not attached else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

assert "threadpool" in repr(create_job_ctx("threadpool"))
seen = []
thread = threading.Thread(target=lambda: seen.append(get_job_context()))
thread.start()
thread.join()
assert seen == [attached]
with own:
    assert own.get(own.run(get_job_context)) is own
print("attached")
"""


def test_the_attached_context_is_that_of_the_process() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("attached\n", "")

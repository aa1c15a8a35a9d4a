"""What the process of an actor's server does about its supervisor."""

from __future__ import annotations

import subprocess
import sys

from fray.vocabulary import EXIT_FAILURE

TELL_NOBODY = """
import os
from fray.job.actor_member import _News
listening, telling = os.pipe()
os.close(listening)
with os.fdopen(telling, "w") as pipe:
    _News(pipe).tell(None)
print("went on")
"""


def test_a_server_ends_without_a_word_when_its_supervisor_has_ended() -> None:
    ended = subprocess.run([sys.executable, "-c", TELL_NOBODY], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (EXIT_FAILURE, "", "")

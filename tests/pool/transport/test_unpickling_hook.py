"""That the tests of refusals would notice an unpickled global."""

from __future__ import annotations

import os
import pickle


def test_an_unpickled_global_is_noticed(unpickled: list[object]) -> None:
    pickle.loads(pickle.dumps(os.getpid))
    assert unpickled == [("posix", "getpid")]

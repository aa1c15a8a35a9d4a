"""What a group is asked for that it hasn't got."""

from __future__ import annotations

from typing import Any

import pytest

from fray.errors import InvalidOptionError
from fray.job import ActorGroup


@pytest.mark.parametrize("count", [3, -1, "x", 1.5])
def test_more_members_than_there_are_can_not_be_waited_for(count: Any) -> None:
    handles: list[Any] = [None, None]  # which nobody asks
    with pytest.raises(InvalidOptionError, match="count is"):
        ActorGroup("crew", handles, print).wait_ready(count)

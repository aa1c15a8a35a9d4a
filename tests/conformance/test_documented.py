"""What the pages say about clusters is run as it stands there."""

from __future__ import annotations

import contextvars
import re
from pathlib import Path

import pytest

from fray import current_identity
from fray.cluster import Cluster, set_current_cluster

ROOT = Path(__file__).parents[2]
BLOCKS = {
    f"{page}-{number}": block
    for page in ("README.md", "docs/local.md")
    for number, block in enumerate(
        re.findall(
            r"^```python\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
    )
    if "current_cluster()" in block or "current_client()" in block
}


def double(config: dict[str, int]) -> int:
    print("rank", current_identity().rank)
    return 2 * config["answer"]


def test_there_is_something_to_run() -> None:
    assert {name.rpartition("-")[0] for name in BLOCKS} == {"README.md", "docs/local.md"}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_a_page(cluster: Cluster, block: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        set_current_cluster(cluster)
        exec(compile(BLOCKS[block], block, "exec"), {"main": double, "config": {"answer": 21}})

    contextvars.Context().run(run)
    printed = "42\n" if block.startswith("README") else "rank 1\n"
    if "current_client()" in BLOCKS[block]:
        printed = "[42, 42, 42]\n"
    assert printed in capsys.readouterr().out

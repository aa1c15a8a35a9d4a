"""The word count example: the same counts in every context, and a progress bar that tells the truth."""

from __future__ import annotations

import importlib
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from fray.cli.requested_job import load_job
from fray.job import JobContext, create_job_ctx
from fray.wire.frayjob import FrayJob

EXAMPLE = Path(__file__).parents[3] / "examples" / "wordcount"
FILES = 100


@pytest.fixture
def wordcount(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program, imported as its folder is on the path of a script; other tests see nothing of it."""
    monkeypatch.syspath_prepend(EXAMPLE)
    try:
        yield importlib.import_module("wordcount")
    finally:
        for name in ("wordcount", "counting"):
            sys.modules.pop(name, None)


@pytest.fixture(params=["sync", "threadpool"])
def ctx(request: pytest.FixtureRequest) -> Iterator[JobContext]:
    with create_job_ctx(request.param, max_workers=2) as context:
        yield context


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    """Files in which word number n stands more often than word n + 1, beside keywords and installed ones."""
    paths = [tmp_path / f"file_{number}.py" for number in range(FILES)]
    for number, path in enumerate(paths):
        words = [f"word_{n}" for n in range(number + 1)]
        path.write_text(f"def return {' '.join(words)} é\n", encoding="utf-8")
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "other.py").write_text("word_99 " * 1000)
    return sorted(paths)


def count_plainly(paths: list[Path]) -> Counter[str]:
    return Counter(
        word for path in paths for word in re.findall(r"word_\d+", path.read_text(encoding="utf-8"))
    )


def test_counts_what_a_plain_loop_counts(wordcount: ModuleType, ctx: JobContext, sources: list[Path]) -> None:
    plain = count_plainly(sources)
    found = wordcount.count(ctx, sources, top=30, show=lambda _: None)
    assert (found.words, found.distinct) == (plain.total(), len(plain))
    assert found.top == tuple((f"word_{n}", FILES - n) for n in range(30))


def test_every_partition_has_words_of_its_own(
    wordcount: ModuleType, ctx: JobContext, sources: list[Path]
) -> None:
    counting = sys.modules["counting"]
    tally = ctx.create_actor(counting.Tally)
    shards = counting.deal(sources, 5)
    streams = [ctx.run(counting.map_shard, shard, (), wordcount.PARTITIONS, tally) for shard in shards]
    partitions = [
        set().union(*(ctx.get(item) for item in items))
        for items in wordcount.shuffle(ctx, streams, lambda: None)
    ]
    assert len(partitions) == wordcount.PARTITIONS
    assert all(partitions)
    assert sum(len(words) for words in partitions) == len(set().union(*partitions))


def test_progress_only_grows_and_ends_with_all_files(
    wordcount: ModuleType, ctx: JobContext, sources: list[Path]
) -> None:
    shown: list[int] = []
    wordcount.count(ctx, sources, top=1, show=shown.append)
    assert shown == sorted(shown)
    assert shown[-1] == FILES


def test_a_failing_map_task_is_the_programs_error(
    wordcount: ModuleType, ctx: JobContext, sources: list[Path]
) -> None:
    sources[FILES // 2].unlink()
    with pytest.raises(FileNotFoundError):
        wordcount.count(ctx, sources, top=1, show=lambda _: None)


def test_map_tasks_tell_the_actor_of_every_file(
    wordcount: ModuleType, ctx: JobContext, sources: list[Path]
) -> None:
    counting = sys.modules["counting"]
    tally = ctx.create_actor(counting.Tally)
    items = ctx.get(ctx.run(lambda: list(counting.map_shard(sources, (), 3, tally))))
    assert len(items) == 3 * -(-FILES // counting.FILES_PER_BATCH)
    assert ctx.get(tally.read.remote()) == FILES


def test_finds_and_deals_out_each_file_once(
    wordcount: ModuleType, tmp_path: Path, sources: list[Path]
) -> None:
    counting = sys.modules["counting"]
    assert counting.find_sources(tmp_path) == sources
    for shards in (1, 7, FILES, FILES + 1):
        dealt = counting.deal(sources, shards)
        assert sorted(path for shard in dealt for path in shard) == sources
        assert len(dealt) == min(shards, FILES)
        assert all(dealt)


@pytest.mark.usefixtures("sources")
def test_prints_the_words_and_the_totals(
    wordcount: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wordcount.main(["--context", "threadpool", "--workers", "2", "--root", str(tmp_path), "--top", "2"])
    printed = capsys.readouterr().out
    assert re.search(r"word_0 +100 +━{40}", printed)
    assert "word_2" not in printed
    assert "5,050 words" in printed
    assert "100/100 files" in printed


@pytest.mark.parametrize("engine", ["fray", "dask", "ray"])
def test_one_line_of_the_file_with_workers_names_the_engine(engine: str, tmp_path: Path) -> None:
    text = (EXAMPLE / "workers.yaml").read_text(encoding="utf-8")
    path = tmp_path / "workers.yaml"
    path.write_text(re.sub(r"(?m)^    engine: \w+$", f"    engine: {engine}", text), encoding="utf-8")
    loaded = load_job(str(path), stdin=io.BytesIO())
    assert loaded.workspace == tmp_path
    assert loaded.job.spec.workers.engine == engine
    assert loaded.job.spec.entrypoint.command == ["python", "wordcount.py"]


def test_the_job_file_is_a_job_that_runs_the_program() -> None:
    manifest = yaml.safe_load((EXAMPLE / "frayjob.yaml").read_text(encoding="utf-8"))
    job = FrayJob.from_manifest(manifest)
    command = manifest["spec"]["entrypoint"]["command"]
    assert job.metadata.name == "wordcount"
    assert (EXAMPLE / command[1]).is_file()
    assert command[command.index("--workers") + 1] == manifest["spec"]["resources"]["cpu"]

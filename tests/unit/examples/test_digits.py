"""The digits example: its parts keep their promises without starting a gang."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits"


def load(name: str) -> Iterator[ModuleType]:
    """A module of the example, under a name of its own: `data` or `model` must not leak to other tests."""
    spec = importlib.util.spec_from_file_location(f"_digits_example_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their own module up by name
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[spec.name]


@pytest.fixture(scope="module")
def checkpoint() -> Iterator[ModuleType]:
    yield from load("checkpoint")


@pytest.fixture(scope="module")
def data() -> Iterator[ModuleType]:
    yield from load("data")


@pytest.fixture(scope="module")
def model() -> Iterator[ModuleType]:
    yield from load("model")


@pytest.fixture(scope="module")
def options() -> Iterator[ModuleType]:
    yield from load("options")


@pytest.fixture(scope="module")
def report() -> Iterator[ModuleType]:
    yield from load("report")


# --- data: every image is trained on by exactly one rank ----------------------------------------------


@pytest.mark.parametrize("world_size", [1, 2, 4, 8, 128])
def test_the_shards_of_all_ranks_are_the_batch(data: ModuleType, world_size: int) -> None:
    batch = np.random.default_rng(0).permutation(128)
    shards = [data.shard(batch, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert {len(shard) for shard in shards} == {128 // world_size}
    assert np.array_equal(np.concatenate(shards), batch)


def test_a_batch_that_cannot_be_shared_out_evenly_is_an_error(data: ModuleType) -> None:
    with pytest.raises(ValueError, match="a batch of 10 can't be cut into 4 equal parts"):
        data.shard(np.arange(10), rank=0, world_size=4)


def test_an_epoch_takes_each_image_at_most_once_and_only_full_batches(data: ModuleType) -> None:
    batches = data.shuffle_into_batches(1437, 128, seed=0, epoch=1)
    assert batches.shape == (11, 128)
    assert len(np.unique(batches)) == batches.size
    assert 0 <= batches.min() <= batches.max() < 1437


def test_the_order_of_an_epoch_depends_on_seed_and_epoch_alone(data: ModuleType) -> None:
    first = data.shuffle_into_batches(1437, 128, seed=0, epoch=1)
    assert np.array_equal(first, data.shuffle_into_batches(1437, 128, seed=0, epoch=1))
    assert not np.array_equal(first, data.shuffle_into_batches(1437, 128, seed=0, epoch=2))
    assert not np.array_equal(first, data.shuffle_into_batches(1437, 128, seed=1, epoch=1))


def test_a_batch_larger_than_the_data_set_is_an_error(data: ModuleType) -> None:
    with pytest.raises(ValueError, match="a batch of 128 needs more than the 100 images there are"):
        data.shuffle_into_batches(100, 128, seed=0, epoch=1)


def test_training_and_test_images_are_apart_and_together_are_all(data: ModuleType) -> None:
    images = np.arange(50.0)[:, None] * np.ones(64)
    dataset = data.split(images, np.arange(50), seed=0)
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (40, 10)
    assert sorted([*dataset.train_labels, *dataset.test_labels]) == list(range(50))
    assert np.array_equal(dataset.test_images[:, 0], dataset.test_labels)  # each image kept its label
    again = data.split(images, np.arange(50), seed=0)
    assert np.array_equal(again.test_labels, dataset.test_labels)


# --- checkpoints: whole or not at all -----------------------------------------------------------------


def arrays_of(value: float) -> dict[str, np.ndarray]:
    return {"parameters/weights": np.full((3, 2), value, np.float32), "momentum/weights": np.zeros(3)}


def save(checkpoint: ModuleType, folder: Path, *epochs: int) -> list[Path]:
    return [
        checkpoint.save(folder, checkpoint.Checkpoint(epoch, (0.5,) * epoch, arrays_of(epoch)))
        for epoch in epochs
    ]


def load_epoch(checkpoint: ModuleType, folder: Path, warnings: list[str]) -> int | None:
    found = checkpoint.load_newest(folder, like=arrays_of(0), warn=warnings.append)
    if found is None:
        return None
    assert found.losses == (0.5,) * found.epoch
    assert np.array_equal(found.arrays["parameters/weights"], arrays_of(found.epoch)["parameters/weights"])
    return int(found.epoch)


def test_a_checkpoint_comes_back_as_it_was_saved(checkpoint: ModuleType, tmp_path: Path) -> None:
    saved = checkpoint.Checkpoint(2, (1.5, float("nan")), arrays_of(0.1))
    checkpoint.save(tmp_path / "new" / "folder", saved)
    warnings: list[str] = []
    found = checkpoint.load_newest(tmp_path / "new" / "folder", like=saved.arrays, warn=warnings.append)
    assert (found.epoch, warnings) == (2, [])
    assert np.array_equal(found.losses, saved.losses, equal_nan=True)
    for name, array in saved.arrays.items():
        assert np.array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype


def test_the_newest_two_checkpoints_stay(checkpoint: ModuleType, tmp_path: Path) -> None:
    paths = save(checkpoint, tmp_path, 9, 10, 11)
    assert sorted(tmp_path.iterdir()) == sorted(paths[1:])
    assert load_epoch(checkpoint, tmp_path, []) == 11


@pytest.mark.parametrize("kept", [0, 1, 300, -1])
def test_a_torn_checkpoint_is_skipped_with_a_message(
    checkpoint: ModuleType, tmp_path: Path, kept: int
) -> None:
    _, newest = save(checkpoint, tmp_path, 1, 2)
    newest.write_bytes(newest.read_bytes()[:kept])
    warnings: list[str] = []
    assert load_epoch(checkpoint, tmp_path, warnings) == 1
    assert warnings == [f"skipping checkpoint {newest}: it is damaged"]


def test_no_changed_byte_goes_unnoticed(checkpoint: ModuleType, tmp_path: Path) -> None:
    (path,) = save(checkpoint, tmp_path, 1)
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        assert load_epoch(checkpoint, tmp_path, []) is None


def test_a_damaged_checkpoint_gives_way_to_the_same_epoch_done_again(
    checkpoint: ModuleType, tmp_path: Path
) -> None:
    _, second = save(checkpoint, tmp_path, 1, 2)
    damaged = second.rename(second.with_name("epoch-000002-0123456789abcdef.npz"))
    assert load_epoch(checkpoint, tmp_path, []) == 1
    assert save(checkpoint, tmp_path, 2) == [second]
    assert load_epoch(checkpoint, tmp_path, []) == 2
    assert not damaged.exists()


def test_a_checkpoint_of_another_model_is_skipped_with_a_message(
    checkpoint: ModuleType, tmp_path: Path
) -> None:
    (path,) = save(checkpoint, tmp_path, 1)
    for like in [
        arrays_of(0) | {"parameters/weights": np.zeros((2, 3), np.float32)},
        arrays_of(0) | {"parameters/weights": np.zeros((3, 2), np.float64)},
        arrays_of(0) | {"parameters/bias": np.zeros(1)},
        {},
    ]:
        warnings: list[str] = []
        assert checkpoint.load_newest(tmp_path, like=like, warn=warnings.append) is None
        assert warnings == [f"skipping checkpoint {path}: it is of another model"]


def test_a_fresh_start_beside_newer_checkpoints_of_another_model_keeps_its_own(
    checkpoint: ModuleType, tmp_path: Path
) -> None:
    for epoch in (8, 9):
        checkpoint.save(tmp_path, checkpoint.Checkpoint(epoch, (), {"other": np.zeros(1)}))
    own = save(checkpoint, tmp_path, 1, 2, 3)
    assert sorted(tmp_path.iterdir()) == own[1:]


def test_a_run_without_checkpoints_has_none(checkpoint: ModuleType, tmp_path: Path) -> None:
    assert load_epoch(checkpoint, tmp_path, []) is None
    assert load_epoch(checkpoint, tmp_path / "missing", []) is None


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_earlier_checkpoint_and_nothing_half_done(
    checkpoint: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (earlier,) = save(checkpoint, tmp_path, 1)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os if step == "fsync" else Path, step, fail)
        with pytest.raises(OSError, match="No space left on device"):
            save(checkpoint, tmp_path, 2)
    assert list(tmp_path.iterdir()) == [earlier]
    assert load_epoch(checkpoint, tmp_path, []) == 1


def test_a_fresh_run_clears_checkpoints_and_leftovers_but_nothing_else(
    checkpoint: ModuleType, tmp_path: Path
) -> None:
    save(checkpoint, tmp_path, 1, 2)
    (tmp_path / "unfinished.tmp").write_bytes(b"a killed writer left this")
    (tmp_path / "epoch-1.npz").write_bytes(b"not ours")
    checkpoint.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-1.npz"]
    checkpoint.clear(tmp_path / "missing")


# --- model --------------------------------------------------------------------------------------------


def test_a_state_survives_the_way_through_named_arrays(model: ModuleType) -> None:
    state = model.build_state(seed=3)
    copy = model.from_arrays(model.to_arrays(state))
    assert copy._fields == state._fields
    for part, other in zip(state, copy, strict=True):
        assert part.keys() == other.keys()
        assert all(np.array_equal(part[name], other[name]) for name in part)


def test_every_process_begins_with_the_same_state(model: ModuleType) -> None:
    first, second = (model.to_arrays(model.build_state(seed=3)) for _ in range(2))
    other = model.to_arrays(model.build_state(seed=4))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["parameters/weights0"], other["parameters/weights0"])
    assert {array.dtype for array in first.values()} == {np.dtype(np.float32)}


# --- report -------------------------------------------------------------------------------------------


def test_the_plot_is_a_picture_that_replaces_the_last_one(report: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "loss.png"
    path.write_bytes(b"an old one")
    report.save_curve([2.0, 1.0, 0.5], path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.endswith(b"IEND\xaeB`\x82")


@pytest.mark.parametrize("epochs", [1, 2, 20, 1000])
def test_the_curve_in_the_terminal_is_plain_text_of_80_columns(
    report: ModuleType, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    monkeypatch.setenv("COLUMNS", "20")  # a log is read elsewhere than where it was written
    text = report.render_curve([2.0 / (1 + epoch) for epoch in range(epochs)])
    assert "training loss" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert len(text.splitlines()) <= 24
    assert "\x1b" not in text


# --- options ------------------------------------------------------------------------------------------


def test_a_run_fails_on_purpose_at_one_epoch_of_one_attempt_only(options: ModuleType) -> None:
    chosen = options.parse_options(["--fail-at-epoch", "3", "--fail-on-attempt", "2"])
    planned = [
        (epoch, attempt)
        for epoch in range(1, 6)
        for attempt in range(1, 4)
        if chosen.has_planned_failure(epoch=epoch, attempt=attempt)
    ]
    assert planned == [(3, 2)]


def test_by_default_nothing_fails_on_purpose(options: ModuleType) -> None:
    chosen = options.parse_options([])
    assert not any(
        chosen.has_planned_failure(epoch=epoch, attempt=1) for epoch in range(1, chosen.epochs + 1)
    )


@pytest.mark.parametrize(
    "arguments", [["--epochs", "0"], ["--epochs", "many"], ["--batch-size", "-1"], ["now"]]
)
def test_wrong_options_are_refused_with_the_usual_exit_code(
    options: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        options.parse_options(arguments)
    assert arguments[-1] in capsys.readouterr().err


# --- the job file -------------------------------------------------------------------------------------


def test_the_job_file_asks_for_two_slices_off_the_chips_and_one_retry() -> None:
    job = yaml.safe_load((EXAMPLE / "frayjob.yaml").read_text(encoding="utf-8"))
    spec = job["spec"]
    assert (job["apiVersion"], job["kind"]) == ("fray.dev/v1alpha1", "FrayJob")
    assert spec["entrypoint"]["command"] == ["python", "train.py"]
    assert (EXAMPLE / "train.py").is_file()
    assert (spec["replicas"], spec["resources"]["tpu"]) == (2, {"type": "v5p-16"})
    assert {"name": "JAX_PLATFORMS", "value": "cpu"} in spec["environment"]["env"]
    assert spec["retries"] == {"failures": 1}

"""The images, and which process trains on which of them. NumPy only: no JAX, no network.

The data set is the one that comes inside scikit-learn: 1,797 handwritten digits of 8 x 8 pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Dataset", "load_dataset", "shard", "shuffle_into_batches", "split"]

TEST_FRACTION = 0.2

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Images as float32 rows of 64 pixels between 0 and 1, labels as int32 digits."""

    train_images: npt.NDArray[np.float32]
    train_labels: npt.NDArray[np.int32]
    test_images: npt.NDArray[np.float32]
    test_labels: npt.NDArray[np.int32]


def load_dataset(*, seed: int) -> Dataset:
    """Load the digits and split them the same way in every process that passes the same seed."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - takes a second or two: only who trains pays

    images, labels = load_digits(return_X_y=True)
    return split(images / 16.0, labels, seed=seed)


def split(images: npt.NDArray[np.float64], labels: npt.NDArray[np.int64], *, seed: int) -> Dataset:
    """Put a random fifth of the images aside for testing; none is in both parts."""
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = np.split(order, [round(len(images) * TEST_FRACTION)])
    pixels, digits = images.astype(np.float32), labels.astype(np.int32)
    return Dataset(pixels[train], digits[train], pixels[test], digits[test])


def shuffle_into_batches(count: int, batch_size: int, *, seed: int, epoch: int) -> Indices:
    """Indices of `count` images in the order of one epoch, shape (steps, batch_size).

    Every process computes the same order, and a resumed run the same as the one that it resumes, since
    it depends on nothing but the arguments. The images left over from the last full batch are different
    ones each epoch.

    Raises:
        ValueError: a batch is larger than the whole data set.
    """
    steps = count // batch_size
    if steps == 0:
        raise ValueError(f"a batch of {batch_size} needs more than the {count} images there are")
    order = np.random.default_rng([seed, epoch]).permutation(count)
    return order[: steps * batch_size].reshape(steps, batch_size)


def shard(batch: Indices, *, rank: int, world_size: int) -> Indices:
    """The part of `batch` that this rank trains on; the parts of all ranks, in order, are the batch.

    Raises:
        ValueError: the batch can't be cut into `world_size` equal parts.
    """
    if len(batch) % world_size:
        raise ValueError(f"a batch of {len(batch)} can't be cut into {world_size} equal parts")
    return np.split(batch, world_size)[rank]

"""What can be chosen on the command line of `train.py`. No I/O, no JAX."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Options", "parse_options"]


@dataclass(frozen=True)
class Options:
    """One run of the training; the help texts below say what each field means."""

    epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    output: Path
    fail_at_epoch: int | None
    fail_on_attempt: int

    def has_planned_failure(self, *, epoch: int, attempt: int) -> bool:
        """Whether this run shall break down at the start of `epoch` (from 1) in `attempt` (from 1)."""
        return epoch == self.fail_at_epoch and attempt == self.fail_on_attempt


def parse_options(arguments: Sequence[str]) -> Options:
    """Read the options from `arguments` (without the program's name).

    Raises:
        SystemExit: with code 2 and a message on stderr if they are wrong; with 0 after `--help`.
    """
    parser = argparse.ArgumentParser(
        prog="train.py",
        description="Train a classifier of handwritten digits, data-parallel over all processes of the job.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--epochs", type=_positive, default=20, help="passes over the training images")
    parser.add_argument(
        "--batch-size",
        type=_positive,
        default=128,
        help="images per step, over all devices together (rounded so that each device gets the same)",
    )
    parser.add_argument("--learning-rate", type=float, default=0.05, help="step size of gradient descent")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the split, the weights and the order of images"
    )
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder of checkpoints and plot")
    parser.add_argument(
        "--fail-at-epoch",
        type=_positive,
        help="let the last rank fail when this epoch begins, to watch Fray retry the job",
    )
    parser.add_argument(
        "--fail-on-attempt", type=_positive, default=1, help="the attempt that --fail-at-epoch applies to"
    )
    return Options(**vars(parser.parse_args(arguments)))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number

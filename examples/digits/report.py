"""How a run is shown to people: the loss curve as a picture and as text in the terminal. No JAX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plotext
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

__all__ = ["render_curve", "save_curve"]

WIDTH, HEIGHT = 70, 15
"""Characters of the text form: it fits an 80-column terminal behind a short prefix."""


def save_curve(losses: Sequence[float], path: Path) -> None:
    """Draw the training loss of each epoch into a PNG file at `path`, replacing one that is there.

    The losses must be finite. Needs no display: the picture is drawn by Matplotlib's Agg backend.

    Raises:
        OSError: the file can't be written.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(
        title="Handwritten digits", xlabel="epoch", ylabel="training loss", yscale="log"
    )
    axes.plot(range(1, len(losses) + 1), losses, marker="o", markersize=3)
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(path, dpi=120)


def render_curve(losses: Sequence[float]) -> str:
    """The training loss of each epoch as lines of text without colours or control characters.

    The losses must be finite.
    """
    plotext.terminal.limit(width=False, height=False)  # the same picture in every terminal
    figure = plotext.figure.clear()
    figure.theme("colorless")
    figure.plot_size(WIDTH, HEIGHT)
    figure.title("training loss")
    figure.label("epoch")
    figure.ruler("x").ticks(_ticks(len(losses)))
    figure.draw(figure.signal(list(range(1, len(losses) + 1)), list(losses)).lines())
    return "\n".join(line.rstrip() for line in plotext.uncolorize(figure.build()).splitlines())


def _ticks(epochs: int) -> list[int]:
    """Up to about ten whole numbers between 1 and `epochs`."""
    step = -(-epochs // 10)
    return sorted({1, *range(step, epochs + 1, step)})

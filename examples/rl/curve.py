"""A curve of rewards as a picture: SVG, without any library."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["draw_curve"]

WIDTH, HEIGHT, MARGIN = 640, 320, 40


def draw_curve(rewards: Sequence[float]) -> str:
    """Return the picture of a mean reward for each round."""
    most = max(rewards, default=0.0) or 1.0
    across = (WIDTH - 2 * MARGIN) / max(len(rewards) - 1, 1)
    up = (HEIGHT - 2 * MARGIN) / most
    points = " ".join(
        f"{MARGIN + across * number:.1f},{HEIGHT - MARGIN - up * reward:.1f}"
        for number, reward in enumerate(rewards)
    )
    bottom, right = HEIGHT - MARGIN, WIDTH - MARGIN
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">
  <rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>
  <path d="M{MARGIN} {MARGIN}V{bottom}H{right}" fill="none" stroke="gray"/>
  <polyline points="{points}" fill="none" stroke="steelblue" stroke-width="2"/>
  <text x="{MARGIN}" y="{MARGIN - 12}" font-size="14">mean reward, up to {most:.0f}</text>
  <text x="{right}" y="{bottom + 24}" font-size="14" text-anchor="end">round {len(rewards) - 1}</text>
</svg>
"""

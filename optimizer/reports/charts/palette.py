"""Colours of every chart."""

from __future__ import annotations

# Colours that differ for colour-blind readers (Okabe and Ito, 2008).
BLUE, ORANGE, GREEN, GOLD, GREY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#8a8f98"
PALETTE = (BLUE, ORANGE, GREEN, GOLD, "#CC79A7", "#56B4E9")

"""The learning rate of every step."""

from __future__ import annotations

import math


def learning_rate(step: int, steps: int, peak: float, warm_up: float) -> float:
    """Linear up to the peak over the first share of all steps, then half a cosine down towards zero.

    Args:
        step: Of the whole training, from 0.
        steps: All steps of the training.
        peak: The largest rate.
        warm_up: The share of all steps that the ascent takes; it takes at least one step.
    """
    ascent = max(1, round(warm_up * steps))
    if step < ascent:
        return peak * (step + 1) / ascent
    return peak * (1 + math.cos(math.pi * (step - ascent + 1) / (steps - ascent + 1))) / 2

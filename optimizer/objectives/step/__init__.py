"""One training step: counts of layers x what a layer costs, what happens once per step, memory, intervals."""

"""The Plan tab: a question at the left, its answer at the right, everything in the address."""

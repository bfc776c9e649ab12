"""Which layers lie on which stage, and which of them are recomputed: bounds, then CP-SAT or all shapes."""

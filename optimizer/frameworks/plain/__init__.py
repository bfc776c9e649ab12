"""Training loops of no framework."""

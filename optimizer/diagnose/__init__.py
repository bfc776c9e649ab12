"""Training logs: what a program printed, its steady part, and why it is slower than its plan."""

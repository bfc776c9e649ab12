"""Reports on fitted stacks and on predictions against measured runs."""

"""Plans: `optimize` itself, `check` and `sensitivity`."""

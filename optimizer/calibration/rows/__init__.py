"""Reading a row of measured runs: its numbers, notes, device, cluster, model and recipe."""

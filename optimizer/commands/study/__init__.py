"""Studies: of one plan, of many jobs, and of what the model was fitted to."""

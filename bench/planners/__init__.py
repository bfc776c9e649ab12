"""A benchmark for planners: published training runs as jobs, a file format for predictions, a scorer."""

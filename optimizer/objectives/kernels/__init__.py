"""What a GPU runs: operators as data, matrix products, attention, modules that may be recomputed."""

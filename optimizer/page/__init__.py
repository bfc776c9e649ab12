"""The tabs of `optimize page`: the engine of the command line in a browser, on this machine alone."""

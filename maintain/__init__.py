"""Programs for maintainers: fits of kernels, pooled intervals, tables of the documentation."""

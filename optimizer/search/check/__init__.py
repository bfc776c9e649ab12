"""An answer read back and checked without a solver: its rules, its values, what it claims of the search."""

"""The rules, one a file; `every` lists them."""

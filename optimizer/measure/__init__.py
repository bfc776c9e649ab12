"""A program that measures the user's own nodes, and what its numbers make of them."""

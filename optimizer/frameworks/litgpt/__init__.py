"""litgpt."""

"""The documentation's generated parts: `python -m optimizer.tools.docs` rewrites them all."""

"""The documentation's generated parts: `python -m maintain.docs` rewrites them all."""

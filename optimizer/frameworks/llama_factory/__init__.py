"""LLaMA-Factory."""

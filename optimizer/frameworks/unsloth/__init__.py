"""Unsloth."""

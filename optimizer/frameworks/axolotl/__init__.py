"""Axolotl."""

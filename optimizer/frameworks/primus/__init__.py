"""Primus."""

"""Designs of a purchase, their figures, and the front of the best."""

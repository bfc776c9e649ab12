"""The acts of the lab: each a content file and the functions here that compute its numbers."""

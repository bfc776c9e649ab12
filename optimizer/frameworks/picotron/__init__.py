"""picotron."""

"""What a search may minimise: one file an objective."""

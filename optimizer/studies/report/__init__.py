"""Reports on communication, strategies and scaling."""

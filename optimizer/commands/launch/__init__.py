"""Launches: scripts and logs that exist, trials, and measurements of nodes."""

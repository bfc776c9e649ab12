"""Rooms in a browser: plan and learn on the engine of the command line."""

"""Training frameworks: what their launch files and logs say, and how a plan is launched with each."""

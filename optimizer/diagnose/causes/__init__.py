"""What can make a run slower than its plan, one cause a file."""

"""Launch files of every framework, read into one vocabulary; parsed, never run."""

"""The answer to a job, and how it is written and read back."""

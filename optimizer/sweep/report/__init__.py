"""The table and the page of a batch of jobs."""

"""What a plan costs: kernels and network -> layer -> step; one idea per file."""

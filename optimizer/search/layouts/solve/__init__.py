"""The best layout of one plan: CP-SAT, or all shapes of interleaved virtual stages."""

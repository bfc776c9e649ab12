"""Benchmarks that are not tests of the program."""

"""Machines to buy or rent: `pareto` and `prices`."""

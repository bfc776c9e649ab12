"""The formulas that textbooks teach, slips included: what the acts work out, apart from how it is shown."""

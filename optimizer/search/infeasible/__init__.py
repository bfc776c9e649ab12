"""Why no plan keeps every rule, and what would."""

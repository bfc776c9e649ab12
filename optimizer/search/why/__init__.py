"""Why this plan: what binds, why not another one, why nothing fits, and whether an answer is right."""

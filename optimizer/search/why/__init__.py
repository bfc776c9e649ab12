"""Why this plan: what binds, why not another one, and what is left after nodes are lost."""

"""Config files that launch a training: YAML, JSON, TOML and Python."""

"""OLMo and OLMo-core: their log lines."""

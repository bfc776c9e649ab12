"""llm-foundry on Composer."""

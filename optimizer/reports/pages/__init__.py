"""Pages of HTML that need nothing else: what they are made of, and how their charts are drawn without a program."""

"""The report on a purchase: text, JSON and HTML."""

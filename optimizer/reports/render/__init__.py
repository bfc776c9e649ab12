"""What shows a report: the screen, a page, CSV and JSON."""

"""What the tab shows of a question, each view worked out when it is looked at."""

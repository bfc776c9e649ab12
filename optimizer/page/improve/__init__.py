"""The Improve tab: files of a launch and its logs in, what to change out."""

"""The tab to learn in: predict, see, work the number out."""

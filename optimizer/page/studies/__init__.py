"""The Buy and the Fits tab: each the form of a command's options, and its report."""

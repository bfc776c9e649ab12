"""From a launch as it is to a better one: neighbours of its plan, edits that pay, patches of its files."""

"""What no layout can beat: bounds on time and memory for every plan at once."""

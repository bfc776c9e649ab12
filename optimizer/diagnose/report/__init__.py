"""What a log says, as text and as JSON."""

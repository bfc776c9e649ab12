"""What programs that fine-tune models share."""

"""What is asked: model, hardware, software, limits; and what is decided: the plan."""

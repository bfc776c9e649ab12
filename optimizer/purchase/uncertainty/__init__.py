"""How sure a purchase is: ranges of its figures, win probabilities, break-even values."""

"""Which machines to get: campaigns, money, energy, goodput, and the front of the best designs."""

"""What a message costs: where groups lie, protocols, algorithms, the energy of links."""

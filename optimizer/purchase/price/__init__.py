"""What machines, their network, energy and failures cost."""

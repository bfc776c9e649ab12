"""Shell scripts that launch a training, as they are read and edited."""

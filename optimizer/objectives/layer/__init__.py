"""One layer: its kernels and its messages put together into seconds."""

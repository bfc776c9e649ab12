"""nanoGPT and nanochat."""

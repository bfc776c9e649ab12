"""DeepSpeed, Accelerate and the Trainer over it."""

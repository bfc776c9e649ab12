"""ms-swift."""

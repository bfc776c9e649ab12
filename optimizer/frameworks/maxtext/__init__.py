"""MaxText."""

"""What was fitted, as one file."""

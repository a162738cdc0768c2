"""What is known of each context and model, and how it changes."""

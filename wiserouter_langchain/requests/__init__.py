"""What a call asks for: its texts, operations and arguments, and the limits that bound its cost."""

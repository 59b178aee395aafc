"""What to start together, and how."""

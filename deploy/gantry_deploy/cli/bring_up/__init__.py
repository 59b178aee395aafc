"""Commands that bring a robot up: its first day, and what is wrong with it."""

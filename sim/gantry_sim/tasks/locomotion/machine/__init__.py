"""Differences between machines of one kind: ranges, motors, and what every episode draws anew."""

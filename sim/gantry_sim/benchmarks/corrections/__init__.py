"""Ways to learn from a scripted person's corrections, compared over time and over the person's time."""

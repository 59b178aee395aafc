"""Learning from a person's corrections, which come as streams of steps from actors elsewhere."""

"""Episodes of cars to look at: what happened is written down while they drive, and drawn from above afterwards."""

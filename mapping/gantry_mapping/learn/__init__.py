"""Training of the mapping network: ground, simulated depth, losses, evaluation. Needs torch; no robot loads it."""

"""On-policy learning: PPO, imitation of a teacher, symmetry, and the training loop."""

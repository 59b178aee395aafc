"""Batched training environments, and their adapter to rsl_rl."""

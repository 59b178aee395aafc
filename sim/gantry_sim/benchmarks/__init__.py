"""Benchmarks of simulation and training, and comparisons over seeds."""

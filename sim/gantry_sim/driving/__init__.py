"""Driving: cars, maps and traffic in batched tensors, without a physics engine."""

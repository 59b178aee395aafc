"""Simulated robots behind the interface of real ones."""

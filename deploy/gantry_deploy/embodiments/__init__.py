"""Embodiments: everything that differs between legs, arms, cars and what other packages add."""

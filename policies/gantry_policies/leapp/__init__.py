"""Policies as LEAPP bundles: one graph from raw signals to joint targets, and its description."""

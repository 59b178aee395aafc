"""Workflows for arms: demonstrations, cloning, learning on top of it, scores, bundles and films."""

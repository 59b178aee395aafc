"""Rewards from language goals: pictures of the road, scored by how much they look like what a sentence says."""

"""Correction sessions: a person watches a policy, takes over where it goes wrong, and a learner gets every step."""

"""Checkpoints, logs, memory checks and export that all learners share."""

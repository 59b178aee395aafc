"""Replay buffers, batches and demonstrations of off-policy learning."""

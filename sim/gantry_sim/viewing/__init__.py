"""Films and windows of policies at work."""

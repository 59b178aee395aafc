"""Tasks, one folder a family."""

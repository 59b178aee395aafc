"""Physics backends, tasks and training."""

"""Training loop, log and checkpoints before an error, shared by all trainings."""

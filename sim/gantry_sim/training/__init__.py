"""Training runs: configuration, run folder, training, evaluation and export."""

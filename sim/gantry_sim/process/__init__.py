"""Settings of the training process: threads, output and interruptions."""

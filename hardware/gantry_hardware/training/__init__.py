"""What every training has in common, whatever is learned: the loop, the log, checkpoints before an error."""

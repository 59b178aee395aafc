"""Training runs of manipulation tasks: demonstrations, cloning, off-policy learning, scores and bundles."""

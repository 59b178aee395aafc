"""Action decoders: from a network's output to joint or drive commands."""

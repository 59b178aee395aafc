"""Tasks that are told in words: scenes of several things, and instructions that say which one to handle and where."""

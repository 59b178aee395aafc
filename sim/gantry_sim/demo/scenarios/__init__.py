"""The kinds of demo, one module or a few for each."""

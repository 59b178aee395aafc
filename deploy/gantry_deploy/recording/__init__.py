"""Recordings of runs in MCAP files: writing, reading and explaining them."""

"""Datasets made of other datasets, which stay as they are: merged, split, selected, relabelled."""

"""Files that are read strictly and written whole: archives, JSON, YAML, NPZ, bounds of numbers."""

"""Walking to goals over terrain that must be looked at (AME-2, arXiv 2601.08485)."""

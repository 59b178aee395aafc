"""LEAPP bundles, which Isaac Lab exports: read without its packages, and turned into bundles of this runtime."""

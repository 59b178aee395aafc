"""Releases on robots: copied over SSH, verified and tried there, switched in one step, and returned from."""

"""Timing of the runtime on this machine."""

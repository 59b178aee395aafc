"""Algorithms by name, each of which trains any task whose observations and actions it supports."""

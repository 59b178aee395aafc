"""The demo of an arm."""

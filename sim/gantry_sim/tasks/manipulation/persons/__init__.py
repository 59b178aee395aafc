"""Scripted persons of the manipulation tasks: beside batches of environments, and as a device of a session."""

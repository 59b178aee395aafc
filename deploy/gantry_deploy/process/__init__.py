"""Processes of the runtime: signals, priorities, parents and transports of messages."""

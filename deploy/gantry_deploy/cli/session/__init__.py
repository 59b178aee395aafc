"""``gantry session``: correction sessions, their certificates, and what they recorded."""

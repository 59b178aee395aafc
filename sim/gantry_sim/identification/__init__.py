"""Identification of one machine's dynamics from recordings: motors, friction, delays, mountings, with intervals."""

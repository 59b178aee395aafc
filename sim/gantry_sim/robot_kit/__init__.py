"""A new robot from its model: reading, checking, and writing an installable package."""

"""Commands on the dynamics of one machine."""

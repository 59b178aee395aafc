"""Connections to robots: states, commands, limits, the mock robot and the conformance kit."""

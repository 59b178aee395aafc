"""Commands that put releases onto robots, and those that run on a robot's computer."""

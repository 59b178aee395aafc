"""Names of Isaac Lab's packages and of our family of its tasks."""

PREFIX = "isaaclab:"
"""Names of tasks here begin with it."""
FOREIGN = "isaaclab.tasks"
"""Entry-point group of packages that register tasks with gymnasium when the entry is loaded."""
PACKAGE = "isaaclab_tasks"
"""Package of Isaac Lab's own tasks."""

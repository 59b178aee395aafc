"""Names of tasks that stand for environments of gymnasium; imports nothing, so that a command line may ask at once."""

PREFIX = "gym:"
"""Names of such tasks begin with it."""


def is_gym_task(name: str) -> bool:
    """Whether a task's name means an environment of gymnasium; whether there is one is another question."""
    return name.startswith(PREFIX)

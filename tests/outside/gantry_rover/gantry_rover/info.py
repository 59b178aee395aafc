"""Description of the task for listings, which load no simulator."""

from gantry_sim.tasks.catalogue import TaskInfo

TASKS = (TaskInfo("rover-follow", "Rover follows a velocity command", "rover", ("search",)),)

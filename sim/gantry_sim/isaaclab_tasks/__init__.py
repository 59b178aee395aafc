"""Tasks of Isaac Lab, on a CPU and without Isaac Sim, as tasks of Gantry: ``isaaclab:TASK_ID``."""

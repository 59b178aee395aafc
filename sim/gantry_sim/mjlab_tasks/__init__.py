"""Tasks of mjlab, its own and those of other packages, as tasks of Gantry: ``mjlab:TASK_ID``."""

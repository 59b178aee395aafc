"""Tasks for mjlab and for Isaac Lab."""

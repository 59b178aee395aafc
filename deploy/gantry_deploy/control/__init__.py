"""The control loop, its safety machine, operator input and idle commands."""

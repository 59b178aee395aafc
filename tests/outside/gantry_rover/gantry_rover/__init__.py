"""A two-wheeled rover: robot, embodiment, task, algorithm, backend and observation term outside of Gantry."""

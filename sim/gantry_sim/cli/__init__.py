"""Sub-commands that need the simulator and the learner."""

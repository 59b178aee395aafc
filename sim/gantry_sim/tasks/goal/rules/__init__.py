"""A quadruped that walks to goals by rules, with what the simulator knows: a teacher, and a baseline."""

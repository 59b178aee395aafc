"""Scripted policy of a quadruped that walks to goals, with what the simulator knows: a teacher, and a baseline."""

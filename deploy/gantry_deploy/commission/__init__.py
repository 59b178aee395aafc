"""Commissioning: the first day with a robot, step by step, with a report to keep."""

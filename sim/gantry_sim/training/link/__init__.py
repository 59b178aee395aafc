"""Trainings on the steps of actors elsewhere."""

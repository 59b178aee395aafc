"""Driving tasks."""

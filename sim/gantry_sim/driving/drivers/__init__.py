"""Scripted drivers and the cost-to-go of parking."""

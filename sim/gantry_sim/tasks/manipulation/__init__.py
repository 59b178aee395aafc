"""Manipulation with an arm: things to lift, place, push and insert, experts that do it, and what a policy sees."""

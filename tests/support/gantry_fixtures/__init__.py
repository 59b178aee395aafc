"""Contracts, networks and recordings of arms, cars and footsteps for tests of whatever runs them."""

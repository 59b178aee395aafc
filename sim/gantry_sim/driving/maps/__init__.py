"""Seeded lane maps, race tracks and parking lots, routes through them, and where a car is on them."""

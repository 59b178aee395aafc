"""``gantry bench drive``: how fast driving is simulated and learned, what minibatches do, and how well it is driven."""

"""Vehicle dynamics in batches: parameters, actuation, single-track models and integration."""

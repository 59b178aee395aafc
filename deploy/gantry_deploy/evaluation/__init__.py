"""Episodes in simulation, their metrics, and the gate that a bundle has to pass."""

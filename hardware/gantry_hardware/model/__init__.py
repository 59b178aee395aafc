"""Numbers of a robot: joints, chains, cars, capabilities, and its description as URDF."""

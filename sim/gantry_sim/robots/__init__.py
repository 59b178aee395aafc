"""MuJoCo models of robots, their visuals and their simulated sensors."""

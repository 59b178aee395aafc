"""Physics under mjlab's managers: MuJoCo C in batches on a CPU, MuJoCo Warp (mjlab's own) on a GPU."""

from gantry_sim.physics.engine import BatchEngine, make_engine
from gantry_sim.physics.mjc import MjcSimulation

__all__ = ["BatchEngine", "MjcSimulation", "make_engine"]

"""Physics under mjlab's managers: MuJoCo C in batches on a CPU, MuJoCo Warp (mjlab's own) on a GPU, others by name."""

from gantry_sim.physics.engine import BatchEngine, make_engine
from gantry_sim.physics.mjc import MjcSimulation
from gantry_sim.physics.simulation import SelectiveSimulation, Simulation, SimulationKind, find_simulation

__all__ = [
    "BatchEngine",
    "MjcSimulation",
    "SelectiveSimulation",
    "Simulation",
    "SimulationKind",
    "find_simulation",
    "make_engine",
]

"""Physics backends, tasks and training."""

from gantry_sim.drawing import choose_drawing

choose_drawing()

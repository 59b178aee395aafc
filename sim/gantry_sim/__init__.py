"""Physics backends, tasks and training."""

from gantry_sim.viewing.drawing import choose_drawing

choose_drawing()

"""Scripted drivers, which may teach a car to drive without having learned it.

TeLL-Drive (arXiv 2502.01387) lets a language model advise a learner; what is common is the way, not the teacher:
actions of an expert guide the learner on its own rollouts, less and less.
"""

from __future__ import annotations

from torch import Tensor

from gantry_hardware.errors import GantryError
from gantry_policies.on_policy.config import GuideCfg
from gantry_sim.driving.drivers.baselines import rule_based
from gantry_sim.driving.drivers.park_driver import park_actions
from gantry_sim.driving.env import DriveEnv
from gantry_sim.driving.maps.projection import window
from gantry_sim.driving.scenes.lot_scene import LotScene
from gantry_sim.driving.scenes.road_scene import AHEAD, BEHIND, RoadScene

DRIVE_GUIDE = GuideCfg(
    action_weight=1.0,
    embedding_weight=0.0,
    imitation_iterations=10,
    imitation_learning_rate=1e-3,
    action_loss="mean",
    fade_iterations=60,
)
"""Guidance of a driver by teachers: a tenth of a million steps of imitation, then less and less."""


def rule_actions(env: DriveEnv) -> Tensor:
    """Actions of the scripted driver, ``(N, 2)`` in [-1, 1]; it knows what the simulator knows.

    Raises:
        GantryError: If these cars neither drive on roads nor park.
    """
    scene = env.scene
    if isinstance(scene, LotScene):
        return park_actions(env)
    if not isinstance(scene, RoadScene):
        raise GantryError(f"The scripted driver knows roads and lots, not a {type(scene).__name__}.")
    seen = window(scene.routes, scene.route, scene.place.index, behind=BEHIND, count=BEHIND + AHEAD)
    others = None if scene.traffic is None else scene.traffic.car
    return rule_based(env.cars.pose, env.cars.speed_m_s, seen, others, scene.spec)


class ScriptedDriveEnv(DriveEnv):
    """The same, which offers the actions of the scripted driver."""

    def expert_action(self) -> Tensor:
        """Actions of :func:`rule_actions` in the present state."""
        return rule_actions(self)

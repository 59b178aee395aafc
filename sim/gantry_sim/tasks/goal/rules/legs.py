"""Legs of hip, thigh and calf: where the feet are, how they move with the joints, and the joints of a place."""

from __future__ import annotations

import torch
from torch import Tensor

from gantry_sim.driving.maps.projection import wrapped
from gantry_sim.models import robot_model

STRETCH = 0.981
"""Share of the two links' length that a leg is stretched to at most; at 1 the knee is singular."""
SHORTEST_M = 0.09
"""Nearest that a foot comes to the thigh's axis."""


class Legs:
    """The legs of one robot; f feet, three joints each in the order hip (about x), thigh and calf (about y).

    The foot is the point of the calf's axis at the height of the foot's site, which a Go2 has 2 mm behind it. Knees
    bend backwards: the calf's angle is negative.

    Args:
        robot: Name of a robot whose legs are bodies ``<foot>_hip``, ``<foot>_thigh``, ``<foot>_calf``.
        feet: Foot sites, in the order of the joints.
        device: Where to compute.
    """

    def __init__(self, robot: str, feet: tuple[str, ...], device: str = "cpu") -> None:
        model = robot_model(robot, visuals=False)

        def places(part: str) -> Tensor:
            found = [model.body(f"{foot}_{part}").pos.tolist() for foot in feet]
            return torch.tensor(found, dtype=torch.float32, device=device)

        feet_z = [float(model.site(name).pos[2]) for name in feet]
        self.hip_b = places("hip")
        """(f, 3) where the hip's axis begins, in the base frame, m."""
        self.side_m = places("thigh")[:, 1]
        """(f,) from there to the leg's plane, m, positive to the left."""
        self.thigh_m = -places("calf")[:, 2]
        """(f,) length of the thigh, m."""
        self.calf_m = -torch.tensor(feet_z, dtype=torch.float32, device=device)
        """(f,) from the knee to the foot, m."""

    def feet(self, joint_pos_rad: Tensor) -> tuple[Tensor, Tensor]:
        """Feet of joint positions (N, 3 f): places (N, f, 3), m, and Jacobians (N, f, 3, 3), m/rad, column by joint;
        both in the base frame."""
        hip, thigh, calf = joint_pos_rad.view(len(joint_pos_rad), -1, 3).unbind(-1)
        lower = thigh + calf
        knee_x, knee_z = -self.thigh_m * torch.sin(thigh), -self.thigh_m * torch.cos(thigh)
        foot_x, foot_z = -self.calf_m * torch.sin(lower), -self.calf_m * torch.cos(lower)
        x, z = knee_x + foot_x, knee_z + foot_z
        c, s, side = torch.cos(hip), torch.sin(hip), self.side_m
        place = torch.stack((x, c * side - s * z, s * side + c * z), -1) + self.hip_b
        by_hip = torch.stack((torch.zeros_like(x), -s * side - c * z, c * side - s * z), -1)
        by_thigh = torch.stack((z, s * x, -c * x), -1)
        by_calf = torch.stack((foot_z, s * foot_x, -c * foot_x), -1)
        return place, torch.stack((by_hip, by_thigh, by_calf), -1)

    def joints(self, feet_b: Tensor) -> Tensor:
        """Joint positions (N, 3 f), rad, that put the feet at (N, f, 3), m in the base frame, below the hips; of a
        place out of reach, those of the farthest in its direction."""
        x, y, z = (feet_b - self.hip_b).unbind(-1)
        side = self.side_m
        down = -torch.sqrt((y * y + z * z - side * side).clamp(min=1e-4))
        hip = wrapped(torch.atan2(z, y) - torch.atan2(down, side.expand_as(down)))
        length = torch.sqrt(x * x + down * down)
        reached = length.clamp(SHORTEST_M).minimum(STRETCH * (self.thigh_m + self.calf_m))
        product = 2.0 * self.thigh_m * self.calf_m
        knee = -torch.acos(((reached**2 - self.thigh_m**2 - self.calf_m**2) / product).clamp(-1.0, 1.0))
        inner = torch.atan2(self.calf_m * torch.sin(knee), self.thigh_m + self.calf_m * torch.cos(knee))
        thigh = torch.atan2(-x, -down) - inner
        return torch.stack((hip, thigh, knee), -1).flatten(1)

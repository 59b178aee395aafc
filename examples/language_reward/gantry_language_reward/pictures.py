"""Pictures of the road around cars from above, for vision models."""

from __future__ import annotations

from torch import Tensor

from gantry_deploy.contract.bev_layout import BevLayout
from gantry_deploy.observations.bev import bev_raster
from gantry_deploy.observations.bev_colours import bev_picture
from gantry_deploy.observations.surroundings import Surroundings
from gantry_hardware.errors import GantryError
from gantry_sim.driving.step_info import Look

_LEFT_OUT = ("road_cells", "road_place", "object_kinds", "scan_ranges_m")


def pictures(look: Look | None, rows: Tensor, layout: BevLayout) -> Tensor:
    """Draw what is around some of N cars: the lane along the route, and others, all of one kind.

    Roads beside and kinds of others, which only cars with pictures are told, are left out: what a scorer sees must not
    depend on what the policy does.

    Args:
        look: Surroundings of all of them.
        rows: ``(m,)``, int64, which are drawn.
        layout: Of the pictures.

    Returns:
        uint8 ``(m, 3, H, W)``, the car's heading up.

    Raises:
        GantryError: If there is no source of the surroundings.
    """
    if look is None:
        raise GantryError("env.reward.kind is 'language', but this environment does not say what is around its cars.")
    around, pose = look()
    part = Surroundings(**{name: values[rows] for name, values in around.given().items() if name not in _LEFT_OUT})
    return bev_picture(bev_raster(part, pose[rows], layout), layout)

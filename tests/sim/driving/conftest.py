"""What tests of rewards share."""

import torch

from gantry_sim.driving.step_info import COMFORT, StepInfo


def facts(look=None, **changes):
    """Two cars that drive half a percent of their routes at 10 m/s, where 12 are allowed, without fault."""
    plain = {
        "progress": torch.tensor([0.5, 0.5]),
        "off_route": torch.tensor([False, False]),
        "speed_m_s": torch.tensor([10.0, 10.0]),
        "speed_limit_m_s": torch.tensor([12.0, 12.0]),
        "near_collision": torch.tensor([False, False]),
        "discomfort": torch.zeros(2, len(COMFORT), dtype=torch.bool),
        "lane_share": torch.zeros(2),
        "heading_error_rad": torch.zeros(2),
        "in_junction": torch.tensor([False, False]),
        "steer_change": torch.zeros(2),
        "safe_speed_m_s": torch.tensor([12.0, 12.0]),
        "fault": torch.tensor([False, False]),
    }
    return StepInfo(**plain | {name: torch.as_tensor(value) for name, value in changes.items()}, look=look)

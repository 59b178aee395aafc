"""Make a network's deviations right where they matter: in the map, after the fusion.

A cell's variance falls slowly in winner-take-all, by half per win, and estimates follow each other, so that deviations
which are right frame by frame are too large in the map. One number, added to the log variance of every cell (a
temperature), is fitted on walks over terrain that the network was not trained on, and becomes part of its last layer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from gantry_mapping.config import MappingCfg
from gantry_mapping.errors import MappingError
from gantry_mapping.learn.evaluate import ALL, CONDITIONS, Entrant, EvalCfg, evaluate
from gantry_mapping.learn.heightfields import Heights
from gantry_mapping.learn.unet import MAX_LOG_VARIANCE, MIN_LOG_VARIANCE, GuidedMapNet, MapNet

ONE_SIGMA = 0.6827
"""Share of a normal distribution within one deviation."""
SHIFTS = (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0)
"""Shifts that are tried, in ln m^2; between them the share is interpolated. No further than a factor of e: errors at
edges have heavy tails, so that no deviation is right for the share and for the likelihood at once. On the Go2's
training terrains, a second factor of e would cost five nats on the way to 68 %."""
_CONDITIONS = ("range noise", "all")


class _Shifted:
    """A network as a mapper, with a number added to its log variances."""

    def __init__(self, net: torch.nn.Module, shift: float) -> None:
        self._net, self._shift = net, shift

    def __call__(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode():
            mean, log_variance = self._net(z)
        return mean, (log_variance + self._shift).clamp(MIN_LOG_VARIANCE, MAX_LOG_VARIANCE)


def calibrate(
    net: MapNet | GuidedMapNet,
    mapping: MappingCfg,
    rasters: Mapping[str, Heights],
    resolution_m: float,
    walk: EvalCfg | None = None,
) -> dict[str, float]:
    """Shift a network's log variances so that maps have 68 % of their cells within one deviation.

    Args:
        net: Changed in place: the bias of its last layer.
        mapping: How maps are made.
        rasters: Ground to walk over, ``group/number``, neither trained on nor held out for tests; groups count alike.
        resolution_m: Edge of a raster's cell.
        walk: How to walk.

    Returns:
        ``log_variance_shift``, ln m^2, and the ``share_before`` it.

    Raises:
        MappingError: If there is no ground.
    """
    if not rasters:
        raise MappingError("No ground was given to calibrate on, expected rasters.")
    shares = shares_within(net, mapping, rasters, resolution_m, walk or EvalCfg(robots_per_raster=1))
    # The share grows with the shift; of a tie the first counts.
    order = np.maximum.accumulate([shares[shift] for shift in SHIFTS])
    shift = float(np.interp(ONE_SIGMA, order, SHIFTS))
    with torch.no_grad():
        bias = net.log_variance.bias
        assert bias is not None
        bias += shift
    return {"log_variance_shift": shift, "share_before": shares[0.0]}


def shares_within(
    net: torch.nn.Module, mapping: MappingCfg, rasters: Mapping[str, Heights], resolution_m: float, walk: EvalCfg
) -> dict[float, float]:
    """Share of a map's known cells within one deviation by shift of the log variance: the mean over groups of ground,
    with range noise alone and with everything that may go wrong."""
    entrants = {str(shift): Entrant(mapping, _Shifted(net.eval(), shift)) for shift in SHIFTS}
    conditions = {name: CONDITIONS[name] for name in _CONDITIONS}
    result = evaluate(entrants, rasters, resolution_m, walk, conditions)["conditions"]
    shares = {}
    for shift in SHIFTS:
        groups = [scores for name in _CONDITIONS for scores in _groups(result[name][str(shift)])]
        shares[shift] = float(np.mean([scores["within_1_sigma"] for scores in groups]))
    return shares


def _groups(scores: Mapping[str, dict[str, float]]) -> list[dict[str, float]]:
    return [row for name, row in scores.items() if name != ALL]

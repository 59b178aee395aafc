"""Map input of a policy, explained from its recording alone: map, pose and age of each tick give the window."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import RecordingError
from gantry_deploy.perception.maps import TERM, MapLimits, MapLook, MapSource, OwnMap, WindowCutter
from gantry_deploy.recording.reader import Recording
from gantry_deploy.recording.ros_messages import map_of_points
from gantry_hardware.backends.state import RobotState
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import parse_json_object
from gantry_hardware.files.structured import from_plain
from gantry_mapping.config import MappingCfg
from gantry_mapping.elevation.snapshot import cfg_of, load_snapshot
from gantry_mapping.pipeline import MappingPipeline

FloatArray = NDArray[np.float64]

SEEN, BLIND = "seen", "blind: "
"""Values of ``map`` in ``/gantry/status``; the second is followed by the reason."""
MAPPING, AGES = "mapping", "map_ages"
"""Keys of a recording's metadata: how the map was looked at, and whether it becomes less sure from tick to tick, as a
map of this process does; one that was received changes with its messages alone."""


@dataclass(frozen=True)
class ExplainedWindows:
    """The map windows of a recording, T ticks in which the policy looked at a map."""

    time_s: FloatArray
    """Shape (T,), of the ticks."""
    age_s: FloatArray
    """Shape (T,), how old the map was by the recording."""
    blind: NDArray[np.bool_]
    """Shape (T,), whether the policy was shown unseen ground."""
    news: NDArray[np.bool_]
    """Shape (T,), whether the map was first looked at in this tick."""
    difference: FloatArray
    """Shape (T,), by how much the recorded window differs from the one that recorded map, pose and age give, at most
    over its cells, in the window's units; infinite where the recording lacks what the policy must have had."""

    @property
    def worst(self) -> float:
        """The largest difference; 0 without any tick."""
        return float(self.difference.max(initial=0.0))


def look_values(look: MapLook | None) -> dict[str, str]:
    """Values that a recorder stores in each tick about the map."""
    if look is None:
        return {"map": "", "map_age_s": "nan"}
    return {"map": BLIND + look.blind if look.blind else SEEN, "map_age_s": repr(float(look.age_s))}


def map_metadata(source: MapSource | None) -> dict[str, str]:
    """Values that a recorder stores once about the origin of the map; nothing of a source that does not tell."""
    cfg = getattr(source, "cfg", None)
    if not isinstance(cfg, MappingCfg):
        return {}
    return {MAPPING: json.dumps(asdict(replace(cfg, cameras=()))), AGES: str(isinstance(source, OwnMap)).lower()}


def map_columns(contract: PolicyContract) -> tuple[slice, float] | None:
    """Columns of the newest map window in an observation, and the scale of its numbers; None if there is none."""
    start = 0
    for term in contract.observations:
        if term.name == TERM:
            newest = start + (term.history - 1) * term.size
            return slice(newest, newest + term.size), term.scale
        start += term.size * term.history
    return None


def explained_windows(recording: Recording) -> ExplainedWindows:
    """Cut every recorded window again, out of what else was recorded, and compare.

    Raises:
        RecordingError: If no policy that looks at a map ran, or the recording does not say how it did.
    """
    contract = recording.contract
    columns = None if contract is None else map_columns(contract)
    if contract is None or columns is None:
        raise RecordingError(f"{recording.path}: no policy that observes a map ran in this recording.")
    if MAPPING not in recording.info:
        raise RecordingError(f"{recording.path}: the recording does not say how its policy looked at the map.")
    try:
        plain = parse_json_object(recording.info[MAPPING], f"The metadata '{MAPPING}'", error=RecordingError)
        cfg = from_plain(MappingCfg, plain, MAPPING, RecordingError)
    except GantryError as error:
        raise RecordingError(f"{recording.path}: {error}") from error
    again = _Again(recording, WindowCutter(contract, MapLimits()), cfg)
    status, seen = recording["/gantry/status"], recording.topics.get("/policy/observation")
    looked = status["map"] != ""
    rows = [] if seen is None else rows_at(status["time_s"][looked], seen["time_s"]).tolist()
    found: list[tuple[float, float, bool, bool, float]] = []
    for time_s, age_s, what, row in zip(
        status["time_s"][looked], status["map_age_s"][looked], status["map"][looked], rows, strict=False
    ):
        if row < 0 or seen is None:
            continue
        blind = str(what).startswith(BLIND)
        window, news = again.window(float(time_s), blind=blind)
        part, scale = columns
        told = seen["data"][row][part] / scale
        gap = float("inf") if window is None else float(np.abs(window.ravel() - told).max())
        found.append((float(time_s), float(age_s), blind, news, gap))
    table = np.array(found, dtype=np.float64).reshape(-1, 5).T
    return ExplainedWindows(table[0], table[1], table[2] > 0.5, table[3] > 0.5, table[4])


class _Again:
    """Cuts windows out of a recording's maps, in the order of time."""

    def __init__(self, recording: Recording, cutter: WindowCutter, cfg: MappingCfg) -> None:
        self._cutter, self._cfg = cutter, cfg
        self._maps = recording.topics.get("/elevation_map")
        self._odom = recording.topics.get("/odom")
        self._ages = recording.info.get(AGES) == "true"
        self._newest, self._passed_s = -1, 0.0
        self._pipeline: MappingPipeline | None = None

    def window(self, time_s: float, *, blind: bool) -> tuple[NDArray[np.floating] | None, bool]:
        """The window of a tick, None where the recording lacks what gave it, and whether its map is new."""
        news = self._pass(time_s)
        if blind:
            return self._cutter.unseen, news
        state = self._state(time_s)
        if state is None or self._pipeline is None:
            return None, news
        return self._cutter.cut(self._pipeline, state, 0.0), news

    def _pass(self, time_s: float) -> bool:
        """Go on to a tick; whether it is the first one of a map."""
        if self._maps is None:
            return False
        # A tick and its map have one time; whatever rounding does to it is far below a tick.
        newest = int(np.searchsorted(self._maps["time_s"], time_s + 1e-6)) - 1
        if newest < 0:
            return False
        news = newest != self._newest
        if news:
            self._newest = newest
            snapshot = map_of_points(self._maps["points"][newest])
            self._pipeline = MappingPipeline(cfg_of(self._cfg, snapshot), None, np.zeros((1, 1)))
            load_snapshot(self._pipeline.map, snapshot)
            self._passed_s = float(self._maps["time_s"][newest])
        if self._ages and self._pipeline is not None:
            self._pipeline.advance(time_s - self._passed_s)
            self._passed_s = time_s
        return news

    def _state(self, time_s: float) -> RobotState | None:
        """Robot state at a tick by its own estimate; None where the tick has no odometry of its own."""
        if self._odom is None:
            return None
        row = int(rows_at(np.array([time_s]), self._odom["time_s"])[0])
        pos, quat = (self._odom[name] for name in ("pos_base_in_world_m", "quat_base_to_world_wxyz"))
        if row < 0 or not np.isfinite(pos[row]).all():
            return None
        nothing = np.zeros(3)
        return RobotState(
            stamp_s=time_s,
            joint_pos_rad=np.zeros(0),
            joint_vel_rad_s=np.zeros(0),
            joint_effort_nm=np.zeros(0),
            quat_base_to_world_wxyz=quat[row],
            ang_vel_base_in_base_rad_s=nothing,
            lin_acc_base_in_base_m_s2=nothing,
            pos_base_in_world_m=pos[row],
        )


def rows_at(times_s: FloatArray, among_s: FloatArray) -> NDArray[np.intp]:
    """Rows with exactly these times, -1 where there is none: the next one belongs to another tick."""
    if not len(among_s):
        return np.full(len(times_s), -1)
    rows = np.minimum(np.searchsorted(among_s, times_s), len(among_s) - 1)
    return np.where(among_s[rows] == times_s, rows, -1)

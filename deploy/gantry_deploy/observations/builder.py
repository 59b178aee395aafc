"""An actor's observation, written once: batched torch tensors in training, numpy arrays of one row on the robot.

A term is a function from :class:`Signals` to an array (N, size); :class:`ObservationBuilder` clips, scales, stacks and
concatenates what a contract lists. There is no second implementation.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_deploy.actions.commands import shorten_goal
from gantry_deploy.contract.parts import MAX_WORDS
from gantry_deploy.contract.policy_contract import INSTRUCTION_TERM, ObservationTerm, PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.footsteps import gait as gait_clock
from gantry_deploy.observations.base_velocity import VELOCITY_TERM, base_lin_vel, check_point, velocity_at
from gantry_deploy.observations.joints import JOINT_TERMS, of_joints
from gantry_deploy.observations.mirrors import mirror_action, mirror_contract_window
from gantry_deploy.observations.road import DRIVING_TERMS
from gantry_deploy.observations.scene import SCENE_TERMS
from gantry_deploy.observations.signals import Signals, TermConstants, TermInfo, ee_pose_of, given
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.plugins import find_plugin, load_plugin, plugin_names
from gantry_mapping.elevation.ops import namespace
from gantry_mapping.sensing.frames import rotation_matrix

__all__ = [
    "GROUP",
    "TERMS",
    "ObservationBuilder",
    "Signals",
    "TermConstants",
    "TermInfo",
    "check_term",
    "make_term",
    "needed_signals",
    "term_info",
]

Array = Any

GROUP = "gantry.observation_terms"
"""Entry-point group: name of a term -> :class:`TermInfo`."""


def base_ang_vel(signals: Signals, constants: TermConstants) -> Array:
    """Angular velocity of the base in its own frame, (N, 3), rad/s."""
    return signals.ang_vel_base_in_base_rad_s


def projected_gravity(signals: Signals, constants: TermConstants) -> Array:
    """Unit vector of gravity in the base frame, (N, 3): the third row of the rotation matrix, negated."""
    xp = namespace(signals.quat_base_to_world_wxyz)
    w, x, y, z = (signals.quat_base_to_world_wxyz[:, i] for i in range(4))
    return xp.stack((2.0 * (w * y - x * z), -2.0 * (w * x + y * z), 2.0 * (x * x + y * y) - 1.0), axis=-1)


def base_rotation(signals: Signals, constants: TermConstants) -> Array:
    """Unit quaternion that rotates base vectors into the world, w first, (N, 4)."""
    return signals.quat_base_to_world_wxyz


def last_action(signals: Signals, constants: TermConstants) -> Array:
    """The network's last output, (N, n)."""
    return signals.last_action


def velocity_command(signals: Signals, constants: TermConstants) -> Array:
    """Commanded forward and lateral velocity and yaw rate in the base frame, (N, 3), m/s and rad/s."""
    return signals.command


def gait_clock_term(signals: Signals, constants: TermConstants) -> Array:
    """Sine and cosine of the gait clock, (N, 2), zero while standing."""
    gait = constants.contract.gait
    if gait is None:
        raise ContractError("The observation 'gait_clock' needs a gait in the contract; it has none.")
    drive = gait_clock.drive_command(constants.contract.command, signals.command)
    return gait_clock.clock(gait, signals.time_s, drive)


def goal_command_term(signals: Signals, constants: TermConstants) -> Array:
    """The goal's place in the base's yaw frame, moved to at most 2 m, and sine and cosine of the heading error, (N, 4).

    A command of zeros, which a lost operator's becomes, asks for the heading that the base has.
    """
    xp = namespace(signals.command)
    goal = shorten_goal(signals.command)
    aimless = (goal[:, 2:3] == 0.0) & (goal[:, 3:4] == 0.0)
    return xp.concat((goal[:, :3], xp.where(aimless, xp.ones_like(goal[:, 3:4]), goal[:, 3:4])), axis=-1)


def elevation_map(signals: Signals, constants: TermConstants) -> Array:
    """The map window, (N, rows * cols * channels), row by row: a cell's height over the base plus the nominal base
    height in m, then its uncertainty where the map has it."""
    window = constants.contract.map_window
    if window is None:
        raise ContractError("The observation 'elevation_map' needs a map window in the contract; it has none.")
    values = signals.elevation_map
    shape = (window.rows, window.cols, len(window.channels))
    if values is None:
        raise ContractError(f"The observation 'elevation_map' needs a map of {shape} numbers; there is none.")
    if tuple(values.shape[1:]) != shape:
        raise ContractError(f"The elevation map has shape {tuple(values.shape[1:])}, the contract says {shape}.")
    return namespace(values).reshape(values, (values.shape[0], -1))


def height_scan(signals: Signals, constants: TermConstants) -> Array:
    """Heights of the base over the cells of the map window less the window's nominal height, (N, rows * cols), m: lines
    of cells along x from the right edge to the left, each from back to front.
    """
    elevation_map(signals, constants)  # refuses what is no window
    values, xp = signals.elevation_map, namespace(signals.elevation_map)
    assert values is not None
    return -xp.reshape(xp.permute_dims(values[..., 0], (0, 2, 1)), (values.shape[0], -1))


def ee_pos(signals: Signals, constants: TermConstants) -> Array:
    """Place of the end effector in the base frame, (N, 3), m."""
    return ee_pose_of(signals, constants)[0]


def ee_rotation(signals: Signals, constants: TermConstants) -> Array:
    """Orientation of the end effector: its x and y axes in the base frame, (N, 6), which know no jumps."""
    rotation = ee_pose_of(signals, constants)[1]
    return namespace(rotation).concat((rotation[:, :, 0], rotation[:, :, 1]), axis=-1)


def ee_from_start(signals: Signals, constants: TermConstants) -> Array:
    """From the end effector's place at the start of the episode to where it is, along the base's axes, (N, 3), m."""
    start = given(signals.start_joint_pos_rad, "ee_from_start", "joints at the start")
    kinematics, ids = constants.kinematics
    return ee_pos(signals, constants) - kinematics.forward(namespace(start).take(start, ids, axis=1))[0]


def object_pos(signals: Signals, constants: TermConstants) -> Array:
    """Place of the object in the base frame, (N, 3), m."""
    return given(signals.object_pose_in_base, "object_pos", "an object's pose")[:, :3]


def object_rotation(signals: Signals, constants: TermConstants) -> Array:
    """Orientation of the object: its x and y axes in the base frame, (N, 6)."""
    quat = given(signals.object_pose_in_base, "object_rotation", "an object's pose")[:, 3:]
    rotation = rotation_matrix(quat)
    return namespace(quat).concat((rotation[:, :, 0], rotation[:, :, 1]), axis=-1)


def object_from_ee(signals: Signals, constants: TermConstants) -> Array:
    """From the end effector to the object, along the base's axes, (N, 3), m."""
    return object_pos(signals, constants) - ee_pos(signals, constants)


def object_goal(signals: Signals, constants: TermConstants) -> Array:
    """Position at which the object belongs, in the base frame, (N, 3), m."""
    return signals.command


def goal_from_object(signals: Signals, constants: TermConstants) -> Array:
    """From the object to where it belongs, along the base's axes, (N, 3), m."""
    return signals.command - object_pos(signals, constants)


def instruction(signals: Signals, constants: TermConstants) -> Array:
    """Tokens of the instruction, (N, 16), whole numbers without unit."""
    return given(signals.extra.get(INSTRUCTION_TERM), "instruction", "an instruction")


_OBJECT = {"object_pose_in_base": 7}

TERMS: dict[str, TermInfo] = {
    "base_ang_vel": TermInfo(base_ang_vel, "state/body/angular_velocity", "base", "rad/s", mirror=(-1, 1, -1)),
    "projected_gravity": TermInfo(projected_gravity, "state/body/rotation", "base", "", mirror=(1, -1, 1)),
    "base_rotation": TermInfo(base_rotation, "state/body/rotation", "world", "", mirror=(1, -1, 1, -1)),
    "last_action": TermInfo(last_action, "", "", "", mirror=mirror_action),
    "velocity_command": TermInfo(
        velocity_command, "command/body/velocity", "base", "m/s, m/s, rad/s", mirror=(1, -1, -1)
    ),
    # Sides swap half a period apart, so the mirrored clock runs half a period ahead.
    "gait_clock": TermInfo(gait_clock_term, "", "", "", mirror=(-1, -1)),
    VELOCITY_TERM: TermInfo(
        base_lin_vel,
        "state/body/linear_velocity",
        "base",
        "m/s",
        mirror=(1, -1, 1),
        signals={"lin_vel_base_in_base_m_s": 3},
    ),
    "goal_command": TermInfo(goal_command_term, "command/body/pose", "base_yaw", "m, m, 1, 1", mirror=(1, -1, -1, 1)),
    "elevation_map": TermInfo(elevation_map, "", "base_yaw", "m", mirror=mirror_contract_window),
    "height_scan": TermInfo(height_scan, "", "base_yaw", "m"),
    "ee_pos": TermInfo(ee_pos, "state/body/position", "base", "m"),
    "ee_from_start": TermInfo(ee_from_start, "", "base", "m"),
    "ee_rotation": TermInfo(ee_rotation, "state/body/rotation", "base", ""),
    "object_pos": TermInfo(object_pos, "state/body/position", "base", "m", signals=_OBJECT),
    "object_rotation": TermInfo(object_rotation, "state/body/rotation", "base", "", signals=_OBJECT),
    "object_from_ee": TermInfo(object_from_ee, "state/body/position", "base", "m", signals=_OBJECT),
    "object_goal": TermInfo(object_goal, "command/body/position", "base", "m"),
    "goal_from_object": TermInfo(goal_from_object, "", "base", "m", signals=_OBJECT),
    INSTRUCTION_TERM: TermInfo(instruction, "", "", "", signals={INSTRUCTION_TERM: MAX_WORDS}),
    **JOINT_TERMS,
    **DRIVING_TERMS,
    **SCENE_TERMS,
}
"""Terms of this package; others come by the entry-point group :data:`GROUP`."""


def make_term(
    name: str, size: int, *, scale: float | None = None, clip: float | None = None, history: int | None = None
) -> ObservationTerm:
    """An :class:`ObservationTerm` with kind, frame and unit filled in; scale and history are the usual ones if None.

    Raises:
        UnknownNameError: If there is no such term.
    """
    info = term_info(name)
    scale, history = info.scale if scale is None else scale, info.history if history is None else history
    return ObservationTerm(name, size, scale, clip, history, info.kind, info.frame, info.unit)


def check_term(term: ObservationTerm) -> None:
    """Refuse a term of another meaning than this runtime's; what the contract leaves empty is not compared.

    Raises:
        UnknownNameError: If there is no such term.
        ContractError: With both sides.
    """
    info = term_info(term.name)
    for item in ("kind", "frame", "unit"):
        asked, known = getattr(term, item), getattr(info, item)
        if asked and asked != known:
            raise ContractError(
                f"Observation '{term.name}': the contract's {item} is '{asked}', this runtime's is '{known}'."
            )
    check_point(term)


def term_info(name: str) -> TermInfo:
    """Look a term up, of this package or of an installed one.

    Raises:
        UnknownNameError: If there is no such term.
        ContractError: If its entry point cannot be loaded or holds none.
    """
    if name in TERMS:
        return TERMS[name]
    others = plugin_names(GROUP)
    if name not in others:
        raise UnknownNameError("observation term", name, [*TERMS, *others])
    entry = find_plugin(GROUP, name, "observation term")
    info = load_plugin(entry, "Observation term", ContractError)
    if not isinstance(info, TermInfo):
        raise ContractError(f"Entry point '{entry.value}' is a {type(info).__name__}, expected a TermInfo.")
    return info


def needed_signals(contract: PolicyContract) -> dict[str, int]:
    """Signals that not every robot reports and that a contract's terms need, with the number of values of each."""
    needed: dict[str, int] = {}
    for term in contract.observations:
        needed |= term_info(term.name).signals
    return needed


class ObservationBuilder:
    """Turns signals into the actor's input exactly as the contract says.

    Args:
        contract: What to build.
        like: Any floating array of the namespace, dtype and device to work on; its first dimension is N.

    Raises:
        UnknownNameError: If the contract names a term or a joint that does not exist.
        ContractError: If a term means something else in the contract than here.
    """

    def __init__(self, contract: PolicyContract, like: Array) -> None:
        self.contract = contract
        self._xp = namespace(like)
        self._like = like
        for term in contract.observations:
            check_term(term)
        self._functions = [
            velocity_at(term.point_in_base_m)
            if term.point_in_base_m
            else of_joints(term, contract.joint_names, term_info(term.name).function)
            for term in contract.observations
        ]
        self._constants = TermConstants(contract, self._asarray([contract.default_pos_rad]))
        sizes = [term.size for term in contract.observations]
        scales = [term.scale for term in contract.observations for _ in range(term.size)]
        bounds = [term.clip for term in contract.observations for _ in range(term.size)]
        self._scale = self._asarray([scales])
        self._bound = None
        if any(bound is not None for bound in bounds):
            self._bound = self._asarray([[float("inf") if bound is None else bound for bound in bounds]])
        self._starts = [sum(sizes[:i]) for i in range(len(sizes))]
        # Only what is asked for with a past is kept: a map window may be as large as all the rest.
        self._kept = [i for i, term in enumerate(contract.observations) if term.history > 1]
        self._depth = max((term.history for term in contract.observations), default=1)
        self._frames: Array | None = None
        self._fresh: Array | None = None

    def reset(self, rows: Array | None = None) -> None:
        """Forget history: the next frame fills it. ``rows`` is a boolean mask (N,) or None for all."""
        if rows is None or self._fresh is None:
            self._frames = None
        else:
            self._fresh = self._fresh | rows

    @property
    def past(self) -> tuple[Array, Array] | None:
        """Memory for the next observation: frames (N, depth, sizes), dimensionless, and a mask of the rows without any,
        (N,); None if no term has a history or nothing was seen.
        """
        return None if self._frames is None or self._fresh is None else (self._frames, self._fresh)

    @past.setter
    def past(self, kept: tuple[Array, Array] | None) -> None:
        self._frames, self._fresh = (None, None) if kept is None else kept

    def __call__(self, signals: Signals) -> Array:
        """Build the observation, scaled and so dimensionless.

        Returns:
            Shape (N, observation_size), the contract's.

        Raises:
            ContractError: If a term has another size than the contract says.
        """
        frame = self.frame(signals)
        return frame if self._depth == 1 else self._stack(frame)

    def frame(self, signals: Signals) -> Array:
        """The newest frame alone, clipped and scaled, so dimensionless: shape (N, size), the sum of the terms'
        sizes.
        """
        parts = [function(signals, self._constants) for function in self._functions]
        for term, part in zip(self.contract.observations, parts, strict=True):
            if part.shape[-1] != term.size:
                raise ContractError(
                    f"Observation '{term.name}' has {part.shape[-1]} numbers, the contract says {term.size}."
                )
        frame = self._xp.concat(parts, axis=-1)
        if self._bound is not None:
            frame = self._xp.minimum(self._xp.maximum(frame, -self._bound), self._bound)
        return frame * self._scale

    def _stack(self, frame: Array) -> Array:
        xp = self._xp
        terms = self.contract.observations
        columns = [frame[:, start : start + term.size] for term, start in zip(terms, self._starts, strict=True)]
        newest = xp.concat([columns[i] for i in self._kept], axis=-1)
        if self._frames is None or self._fresh is None:
            frames: Array = xp.stack([newest] * self._depth, axis=1)
        else:
            shifted = xp.concat((self._frames[:, 1:, :], newest[:, None, :]), axis=1)
            frames = xp.where(self._fresh[:, None, None], newest[:, None, :], shifted)
        self._frames = frames
        self._fresh = xp.zeros(frame.shape[0], dtype=xp.bool, device=device(frame))
        start = 0
        for i in self._kept:
            block = frames[:, self._depth - terms[i].history :, start : start + terms[i].size]
            columns[i] = xp.reshape(block, (frame.shape[0], terms[i].history * terms[i].size))
            start += terms[i].size
        return xp.concat(columns, axis=-1)

    def _asarray(self, values: list[Any]) -> Array:
        return self._xp.asarray(values, dtype=self._like.dtype, device=device(self._like))

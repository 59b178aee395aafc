"""Rollouts read back from their recording: what the policy was given, what it did, and how that is judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.commands import goal_command
from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.control.goals import Goal
from gantry_deploy.control.safety import Mode
from gantry_deploy.evaluation.metrics import EpisodeScores, goal_errors, goal_reached, has_fallen
from gantry_deploy.policy.policy import StepPolicy, open_policy
from gantry_deploy.recording.explained import MAPPING, ExplainedWindows, explained_windows
from gantry_deploy.recording.reader import Recording, read_recording
from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import RobotSpec
from gantry_hardware.robots import robot_spec
from gantry_sim.demo.rollout import read_statistics
from gantry_sim.robots.actuated_scene import height_over_ground_m

FloatArray = NDArray[np.float64]

DECIDED = ("/gantry/status", "/joint_states", "/joint_command", "/policy/observation", "/policy/action")
"""Topics that every tick under a policy is recorded on."""
RERUN_EVERY = 5
"""Ticks between two at which a network that answers to each observation by itself is run again."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Ticks under the policy without a break: T of them, n joints, o observations, a numbers of an action."""

    spec: RobotSpec
    """The robot."""
    contract: PolicyContract
    """Of the policy, as recorded."""
    start_s: float
    """First tick, on the clock of the recording."""
    time_s: FloatArray
    """Shape (T,), since then."""
    joint_pos_rad: FloatArray
    """Shape (T, n); a gripper in m."""
    target_rad: FloatArray
    """Shape (T, n), what the joints were told."""
    observation: NDArray[np.float32]
    """Shape (T, o), what the network was given."""
    action: NDArray[np.float32]
    """Shape (T, a), what was done, within the contract's clip."""
    base_action: NDArray[np.float32] | None
    """Shape (T, a), what the base policy wanted; None of a policy without one."""
    period_s: FloatArray
    """Shape (T - 1,), time between ticks."""
    busy_s: FloatArray
    """Shape (T,), time that a tick took: reading, the map, observing, inferring, judging, writing."""
    infer_s: FloatArray
    """Shape (T,), time inside the networks."""
    fault: str
    """Fault that damped the robot out of the policy; empty if none did, or if the policy was stopped before."""

    @property
    def correction(self) -> NDArray[np.float32] | None:
        """Shape (T, a), what was added to the base's action."""
        return None if self.base_action is None else self.action - self.base_action


@dataclass(frozen=True, kw_only=True)
class MeasuredWalk(Measured):
    """A walk by commanded velocities."""

    command: FloatArray
    """Shape (T, 3), what was asked for: forward and lateral m/s, yaw rad/s, base frame."""
    velocity: FloatArray
    """Shape (T, 3), what the robot did, likewise."""
    pos_base_in_world_m: FloatArray
    """Shape (T, 3)."""
    quat_base_to_world_wxyz: FloatArray
    """Shape (T, 4)."""
    contact: NDArray[np.bool_] | None
    """Shape (T, feet), which feet were on the ground; None if the robot does not say."""
    lin_vel_error_m_s: float
    """Mean planar velocity error."""
    yaw_rate_error_rad_s: float
    """Mean yaw-rate error."""
    fell: bool
    """Whether it fell."""

    @property
    def distance_m(self) -> float:
        """Length of the base's path over the ground."""
        return float(np.linalg.norm(np.diff(self.pos_base_in_world_m[:, :2], axis=0), axis=1).sum())


@dataclass(frozen=True, kw_only=True)
class MeasuredGoalWalk(Measured):
    """A walk to a goal by a map; M maps of S x S cells."""

    goal: Goal
    """Commanded goal."""
    command: FloatArray
    """Shape (T, 4), the goal from where the robot was, :func:`gantry_deploy.actions.commands.goal_command`."""
    pos_base_in_world_m: FloatArray
    """Shape (T, 3)."""
    quat_base_to_world_wxyz: FloatArray
    """Shape (T, 4)."""
    map_time_s: FloatArray
    """Shape (M,), when a new map was first looked at, on the clock of ``time_s``."""
    map_points: FloatArray
    """Shape (M, S, S, 4), :data:`gantry_deploy.recording.ros_messages.MAP_FIELDS`."""
    fell: bool
    """Whether it fell."""
    explained: ExplainedWindows | None = None
    """Map windows that the policy was shown, cut again out of the recording; None where that is not recorded."""

    @property
    def distance_m(self) -> float:
        """From the goal at the last tick."""
        return float(goal_errors(self.command[-1:])[0][0])

    @property
    def heading_error_rad(self) -> float:
        """At the last tick."""
        return float(goal_errors(self.command[-1:])[1][0])

    @property
    def crossed(self) -> bool:
        """Whether it stood at the goal, in its heading, at the last tick, without a fall or a fault before."""
        return bool(goal_reached(self.command[-1:])[0]) and not self.fell and not self.fault

    @property
    def arrived_s(self) -> float | None:
        """Since when it has been at the goal without a break, until the last tick; None if it is not there."""
        away = np.flatnonzero(~goal_reached(self.command))
        first = int(away[-1]) + 1 if len(away) else 0
        return None if first == len(self.time_s) else float(self.time_s[first])

    @property
    def map_rate_hz(self) -> float:
        """New maps per second under the policy, as it received them."""
        inside = self.map_time_s[(self.map_time_s >= 0.0) & (self.map_time_s <= self.time_s[-1])]
        return max(0, len(inside) - 1) / float(inside[-1] - inside[0]) if len(inside) > 1 else 0.0


@dataclass(frozen=True)
class Trial:
    """One episode of a task as its operator saw it."""

    done: bool
    """Whether the simulator said that the task was done."""
    done_s: float | None = None
    """Time of success on the clock of the recording; None if never."""
    reason: str = ""
    """Reason for another end; empty if it was done."""


@dataclass(frozen=True, kw_only=True)
class MeasuredEpisode(Measured):
    """An episode of an arm; S ticks of it and after it are shown."""

    trial: Trial
    """Result by its operator."""
    shown_s: FloatArray
    """Shape (S,), times of what is shown, since the first tick."""
    shown_joint_pos_rad: FloatArray
    """Shape (S, n)."""
    shown_things_in_base: FloatArray
    """Shape (S, k, 7), m and unit quaternion, w first, of the object, or of each thing that an instruction chooses
    among; of those only places are recorded, and they are taken to be upright."""
    fixtures_in_base_m: FloatArray
    """Shape (f, 3), where the object belongs, or each zone that an instruction chooses among; none in a task without
    a goal."""
    instruction: str
    """Instruction that was followed at the end; empty of a policy that is told nothing in words."""

    @property
    def done_after_s(self) -> float | None:
        """Time of success since the first tick under the policy; None if it never was."""
        done_s = self.trial.done_s
        return None if done_s is None else max(0.0, done_s - self.start_s)


def measure_walk(path: Path) -> MeasuredWalk:
    """Read and score a recording of a walk by velocities.

    Args:
        path: The MCAP file.

    Raises:
        GantryError: If there is none, or the policy never ran in it, or its robot told no odometry.
    """
    recording = read_recording(path)
    feet = "/foot_contacts" in recording.topics
    ticks = _ticks(recording, (*DECIDED, "/odom", "/cmd_vel", *(("/foot_contacts",) if feet else ())))
    common = ticks.common()
    lin_vel, ang_vel = (ticks("/odom", f"{name}_base_in_base_{unit}_s") for name, unit in _VELOCITIES)
    velocity, command = np.column_stack([lin_vel[:, :2], ang_vel[:, 2]]), ticks("/cmd_vel", "command")
    pos, quat = ticks.pose()
    scores = _tracking(command, velocity, pos, quat, common["spec"])
    return MeasuredWalk(
        **common,
        command=command,
        velocity=velocity,
        pos_base_in_world_m=pos,
        quat_base_to_world_wxyz=quat,
        contact=ticks("/foot_contacts", "data") > 0.5 if feet else None,
        lin_vel_error_m_s=float(scores.lin_vel_error_m_s[0]),
        yaw_rate_error_rad_s=float(scores.yaw_rate_error_rad_s[0]),
        fell=bool(scores.fallen[0]),
    )


def measure_goal_walk(path: Path, goal: Goal, scene: mujoco.MjModel) -> MeasuredGoalWalk:
    """Read and judge a recording of a walk to a goal.

    Args:
        path: The MCAP file.
        goal: Where the robot was sent, in the world.
        scene: The robot where it walked, with the ground that a fall is judged by.

    Raises:
        GantryError: If there is none, or the policy never ran in it, or its robot told no odometry.
    """
    recording = read_recording(path)
    ticks = _ticks(recording, (*DECIDED, "/odom"))
    common, (pos, quat) = ticks.common(), ticks.pose()
    place = np.tile([goal.x_in_world_m, goal.y_in_world_m, 0.0], (len(pos), 1))
    maps = recording.topics.get("/elevation_map", {"time_s": np.zeros(0), "points": np.zeros((0, 1, 1, 4))})
    data = mujoco.MjData(scene)
    mujoco.mj_kinematics(scene, data)
    heights_m = np.array([height_over_ground_m(scene, data, *at) for at in zip(pos, quat, strict=True)])
    return MeasuredGoalWalk(
        **common,
        goal=goal,
        command=goal_command(place, np.full(len(pos), goal.yaw_in_world_rad), pos, quat),
        pos_base_in_world_m=pos,
        quat_base_to_world_wxyz=quat,
        map_time_s=maps["time_s"] - common["start_s"],
        map_points=maps["points"],
        fell=bool(has_fallen(quat, heights_m, common["spec"].fall_height_m).any()),
        explained=explained_windows(recording) if MAPPING in recording.info else None,
    )


def measure_episodes(path: Path, trials: Sequence[Trial]) -> tuple[MeasuredEpisode, ...]:
    """Read a recording of an arm's episodes.

    Args:
        path: The MCAP file.
        trials: Results by the operator, in order; an episode that it did not see to its end was broken off.

    Raises:
        GantryError: If there is none, or the policy never ran in it, or the object was never observed.
    """
    recording = read_recording(path)
    times, modes = (recording["/gantry/status"][name] for name in ("time_s", "mode"))
    episodes: list[MeasuredEpisode] = []
    for number, (begin, end) in enumerate(_spans(modes)):
        held = np.flatnonzero(modes[end:] != Mode.STAND.value)
        last = end + int(held[0]) if len(held) else len(modes)
        base = ("/policy/base_action",) if "/policy/base_action" in recording.topics else ()
        things, *more = ("/things", "/zones", "/instruction") if "/things" in recording.topics else ("/object_pose",)
        ticks = _Ticks(recording, times[begin:end], (*DECIDED, things, *more, *base))
        shown = _Ticks(recording, times[begin:last], ("/gantry/status", "/joint_states", things))
        if len(ticks.time_s) < 2:
            continue
        goals = [topic for topic in ("/zones", "/object_goal") if topic in recording.topics]
        common = ticks.common()
        episode = MeasuredEpisode(
            **common,
            trial=trials[number] if number < len(trials) else Trial(False, reason="it was broken off"),
            shown_s=shown.time_s - common["start_s"],
            shown_joint_pos_rad=shown("/joint_states", "joint_pos_rad"),
            shown_things_in_base=_upright(shown(things, "data")),
            fixtures_in_base_m=ticks(goals[0], "data")[0].reshape(-1, 3) if goals else np.zeros((0, 3)),
            instruction=str(ticks("/instruction", "data")[-1]) if more else "",
        )
        episodes.append(episode)
    if not episodes:
        raise GantryError(f"{path}: the policy never ran in this recording.")
    return tuple(episodes)


def _upright(things: NDArray[Any]) -> FloatArray:
    """Poses (S, k, 7) of one object's (S, 7), or of the places (S, k, 3) of several things."""
    if things.ndim == 2:
        return things[:, None]
    turns = np.broadcast_to([1.0, 0.0, 0.0, 0.0], (*things.shape[:2], 4))
    return np.concatenate((things, turns), axis=2)


def read_trials(path: Path) -> tuple[Trial, ...]:
    """Results that the operator noted, in order; empty if it left no note."""
    rows = (read_statistics(path) or {}).get("episodes", [])
    return tuple(Trial(bool(row["done"]), row["done_s"], str(row["reason"])) for row in rows)


def rerun_difference(episodes: Sequence[Measured], bundle: Bundle) -> float | None:
    """Largest difference of the recorded actions, and of those of their base, from what the bundle's networks answer to
    the recorded observations: in order where they plan ahead, else at every :data:`RERUN_EVERY`-th tick; None without
    an episode, and for a policy with cameras, since recordings hold no pictures."""
    differences: list[float] = []
    contract = bundle.contract
    if contract.cameras:
        return None
    for episode in episodes:
        policy = open_policy(bundle)
        for row in range(0, len(episode.time_s), RERUN_EVERY if isinstance(policy, StepPolicy) else 1):
            action, base = policy(episode.observation[row][None])
            action = np.clip(action[0], -contract.action.clip, contract.action.clip)
            differences.append(float(np.abs(action - episode.action[row]).max()))
            if base is not None and episode.base_action is not None:
                differences.append(float(np.abs(base[0] - episode.base_action[row]).max()))
    return max(differences, default=None)


class _Ticks:
    """Rows of a recording at those of some times that all of some topics have."""

    def __init__(self, recording: Recording, times_s: FloatArray, topics: Sequence[str]) -> None:
        for topic in topics:
            times_s = np.intersect1d(times_s, recording[topic]["time_s"])
        self.time_s, self._recording, self._topics = times_s, recording, topics

    def __call__(self, topic: str, name: str) -> NDArray[Any]:
        table = self._recording[topic]
        return table[name][np.searchsorted(table["time_s"], self.time_s)]

    def pose(self) -> tuple[FloatArray, FloatArray]:
        """Place (T, 3) in m and orientation (T, 4) of the base in the world."""
        return self("/odom", "pos_base_in_world_m"), self("/odom", "quat_base_to_world_wxyz")

    def common(self) -> dict[str, Any]:
        """Fields of :class:`Measured`."""
        contract, status = self._recording.contract, self._recording["/gantry/status"]
        assert contract is not None
        clip, base = contract.action.clip, "/policy/base_action"
        after = int(np.searchsorted(status["time_s"], self.time_s[-1])) + 1
        while after < len(status["mode"]) and status["mode"][after] == Mode.POLICY.value:
            after += 1
        damped = after < len(status["mode"]) and status["mode"][after] == Mode.DAMP.value
        return {
            "spec": robot_spec(self._recording.robot),
            "contract": contract,
            "start_s": float(self.time_s[0]),
            "time_s": self.time_s - self.time_s[0],
            "joint_pos_rad": self("/joint_states", "joint_pos_rad"),
            "target_rad": self("/joint_command", "pos_rad"),
            "observation": self("/policy/observation", "data").astype(np.float32),
            "action": np.clip(self("/policy/action", "data"), -clip, clip).astype(np.float32),
            "base_action": self(base, "data").astype(np.float32) if base in self._topics else None,
            "period_s": self("/gantry/status", "period_s")[1:],
            "busy_s": self("/gantry/status", "busy_s"),
            "infer_s": self("/gantry/status", "infer_s"),
            "fault": str(status["fault"][after]) if damped else "",
        }


_VELOCITIES = (("lin_vel", "m"), ("ang_vel", "rad"))


def _ticks(recording: Recording, topics: Sequence[str]) -> _Ticks:
    """All ticks under the policy that hold what is needed."""
    status = recording["/gantry/status"]
    never = GantryError(f"{recording.path}: the policy never ran in this recording.")
    if recording.contract is None or Mode.POLICY.value not in status["mode"]:
        raise never
    ticks = _Ticks(recording, status["time_s"][status["mode"] == Mode.POLICY.value], topics)
    if len(ticks.time_s) < 2:
        raise never
    return ticks


def _spans(modes: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of ticks under the policy."""
    running = np.concatenate(([False], modes == Mode.POLICY.value, [False])).astype(np.int8)
    edges = np.flatnonzero(np.diff(running))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _tracking(
    command: FloatArray, velocity: FloatArray, pos: FloatArray, quat: FloatArray, spec: RobotSpec
) -> EpisodeScores:
    """Compare where each tick led, which the next one reads, with what it was asked for."""
    scores = EpisodeScores(np.zeros((1, 1)), spec.fall_height_m)
    zero = np.zeros(1)
    for i in range(1, len(command)):
        lin_vel = np.concatenate([velocity[i, :2], zero])[None]
        ang_vel = np.array([[0.0, 0.0, velocity[i, 2]]])
        scores.update(lin_vel, ang_vel, quat[i][None], pos[i, 2:3], command[i - 1][None])
    return scores

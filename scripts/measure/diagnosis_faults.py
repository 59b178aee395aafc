"""Seeded faults of robots and runtimes for ``scripts/measure/diagnosis.py``, each run in closed loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gantry_deploy.observations.signals import Signals
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.state import RobotState
from gantry_mapping.sensing.frames import rotation_matrix

Generator = np.random.Generator
ReadingChange = Callable[[RobotState], RobotState]


@dataclass(frozen=True)
class Fault:
    """A fault that is put in, and what should be said of it."""

    name: str
    """For the table."""
    kind: str
    """Value of the :class:`~gantry_deploy.diagnosis.findings.FindingKind` that is right."""
    subjects: tuple[str, ...]
    """Quantities that must be named; one finding of the kind for each."""
    names: tuple[str, ...] = ()
    """Joints or axes that must be named; empty if all are concerned."""
    change_runner: Callable[[PolicyRunner], None] | None = None
    """Breaks the runtime."""
    change_reading: ReadingChange | None = None
    """Breaks what the robot reports."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the simulated robot."""

    @property
    def by_audit(self) -> bool:
        """Whether the audit must find it; the doctor otherwise."""
        return self.change_runner is not None


class _Wrapped:
    """An observation builder whose signals or numbers are wrong."""

    def __init__(self, builder: Any, signals: Callable[[Signals], Signals] | None, numbers: Any = None) -> None:
        self._builder, self._signals, self._numbers = builder, signals, numbers

    def reset(self) -> None:
        self._builder.reset()

    def __call__(self, signals: Signals) -> Any:
        seen = self._builder(signals if self._signals is None else self._signals(signals))
        return seen if self._numbers is None else self._numbers(seen.copy())


def signals_fault(change: Callable[[Signals], Signals]) -> Callable[[PolicyRunner], None]:
    """A runtime that reads its signals wrongly."""

    def apply(runner: PolicyRunner) -> None:
        runner._builder = _Wrapped(runner._builder, change)

    return apply


def numbers_fault(change: Callable[[PolicyRunner], Callable[[Any], Any]]) -> Callable[[PolicyRunner], None]:
    """A runtime that puts its observation together wrongly."""

    def apply(runner: PolicyRunner) -> None:
        runner._builder = _Wrapped(runner._builder, None, change(runner))

    return apply


class _WrongTargets:
    """An action decoder whose targets are wrong."""

    def __init__(self, decoder: Any, change: Callable[[Any], Any]) -> None:
        self._decoder, self._change = decoder, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def __call__(self, action: Any, signals: Signals) -> Any:
        targets = self._decoder(action, signals)
        return targets._replace(pos_rad=self._change(targets.pos_rad))


def _columns(runner: PolicyRunner, term: str) -> slice:
    from gantry_deploy.diagnosis.rebuild import term_columns

    names = [item.name for item in runner.contract.observations]
    return term_columns(runner.contract)[names.index(term)]


def _delayed(ticks: int) -> Callable[[Signals], Signals]:
    past: list[Signals] = []

    def change(signals: Signals) -> Signals:
        past.append(signals)
        old = past[max(0, len(past) - 1 - ticks)]
        return replace(signals, joint_pos_rad=old.joint_pos_rad, joint_vel_rad_s=old.joint_vel_rad_s)

    return change


def _last_action_late(runner: PolicyRunner) -> Callable[[Any], Any]:
    past: list[Any] = []
    columns = _columns(runner, "last_action")

    def change(seen: Any) -> Any:
        past.append(seen[:, columns].copy())
        seen[:, columns] = past[max(0, len(past) - 2)]
        return seen

    return change


def _in(columns: str, function: Callable[[Any], Any]) -> Callable[[PolicyRunner], Callable[[Any], Any]]:
    def of(runner: PolicyRunner) -> Callable[[Any], Any]:
        where = _columns(runner, columns)

        def change(seen: Any) -> Any:
            seen[:, where] = function(seen[:, where])
            return seen

        return change

    return of


def _exchange(first: str, second: str) -> Callable[[PolicyRunner], Callable[[Any], Any]]:
    def of(runner: PolicyRunner) -> Callable[[Any], Any]:
        a, b = _columns(runner, first), _columns(runner, second)

        def change(seen: Any) -> Any:
            seen[:, a], seen[:, b] = seen[:, b].copy(), seen[:, a].copy()
            return seen

        return change

    return of


def _rotate_world(signals: Signals) -> Signals:
    turned = np.einsum(
        "nij,nj->ni", rotation_matrix(signals.quat_base_to_world_wxyz), signals.ang_vel_base_in_base_rad_s
    )
    return replace(signals, ang_vel_base_in_base_rad_s=turned.astype(np.float32))


def _moved(order: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for i, name in enumerate(names) if order[i] != i)


def _some_order(rng: Generator, n: int, count: int) -> Any:
    """A permutation that moves ``count`` numbers."""
    order, which = np.arange(n), rng.permutation(n)[:count]
    order[which] = np.roll(which, 1)
    return order


SDK_ORDER = (3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8)


def runtime_faults(rng: Generator, joints: tuple[str, ...], default_rad: Any) -> list[Fault]:
    """Faults of a runtime, which the audit must name."""
    n = len(joints)
    swapped, moved = _some_order(rng, n, 2), _some_order(rng, n, 4)
    flipped = np.sort(rng.permutation(n)[:3])
    sign = np.ones(n, np.float32)
    sign[flipped] = -1
    factor = float(rng.choice([0.05, 0.25, 2.0, 57.29578]))
    default = np.asarray(default_rad, np.float32)
    offset = np.zeros(n, np.float32)
    shifted = int(rng.integers(n))
    offset[shifted] = float(rng.uniform(0.05, 0.2))
    late = int(rng.integers(1, 4))

    def scale_gains(runner: PolicyRunner) -> None:
        runner._stiffness = runner._stiffness * 0.5

    def wrong_targets(change: Callable[[Any], Any]) -> Callable[[PolicyRunner], None]:
        def apply(runner: PolicyRunner) -> None:
            runner._decoder = _WrongTargets(runner._decoder, change)

        return apply

    return [
        Fault("joint positions in the vendor's order", "permutation", ("joint_pos",), joints,
              signals_fault(lambda s: replace(s, joint_pos_rad=s.joint_pos_rad[:, SDK_ORDER]))),
        Fault("two joint velocities exchanged", "permutation", ("joint_vel",), _moved(swapped, joints),
              signals_fault(lambda s: replace(s, joint_vel_rad_s=s.joint_vel_rad_s[:, swapped]))),
        Fault("last action in another order", "permutation", ("last_action",), _moved(moved, joints),
              signals_fault(lambda s: replace(s, last_action=s.last_action[:, moved]))),
        Fault("signs of three joint positions", "sign", ("joint_pos",), tuple(joints[i] for i in flipped),
              numbers_fault(_in("joint_pos", lambda x: x * sign))),
        Fault("gravity points up", "sign", ("projected_gravity",), (),
              numbers_fault(_in("projected_gravity", lambda x: -x))),
        Fault("quaternion read as xyzw", "frame", ("projected_gravity",), (),
              signals_fault(lambda s: replace(
                  s, quat_base_to_world_wxyz=s.quat_base_to_world_wxyz[:, [3, 0, 1, 2]]))),
        Fault("angular velocity in the world's frame", "frame", ("base_ang_vel",), (), signals_fault(_rotate_world)),
        Fault("scale of the angular velocity", "scale", ("base_ang_vel",), (),
              numbers_fault(_in("base_ang_vel", lambda x: x * factor))),
        Fault("scale of the joint velocities", "scale", ("joint_vel",), (),
              numbers_fault(_in("joint_vel", lambda x: x * 0.5))),
        Fault("default pose not subtracted", "offset", ("joint_pos",), (),
              numbers_fault(_in("joint_pos", lambda x: x + default))),
        Fault("one joint's offset", "offset", ("joint_pos",), (joints[shifted],),
              numbers_fault(_in("joint_pos", lambda x: x + offset))),
        Fault("joints some ticks late", "delay", ("joint_pos", "joint_vel"), (), signals_fault(_delayed(late))),
        Fault("last action a tick late", "delay", ("last_action",), (), numbers_fault(_last_action_late)),
        Fault("positions and velocities exchanged", "term order", ("joint_pos", "joint_vel"), (),
              numbers_fault(_exchange("joint_pos", "joint_vel"))),
        Fault("lateral command reversed", "sign", ("velocity_command",), ("lin_vel_y_base_m_s",),
              numbers_fault(_in("velocity_command", lambda x: x * np.array([1, -1, 1], np.float32)))),
        Fault("targets in the vendor's order", "permutation", ("joint targets",), joints,
              wrong_targets(lambda x: x[:, SDK_ORDER])),
        Fault("half of the stiffness", "scale", ("stiffness",), (), scale_gains),
    ]  # fmt: skip


def _joints(state: RobotState, change: Callable[[Any], Any]) -> RobotState:
    return replace(
        state,
        joint_pos_rad=change(state.joint_pos_rad),
        joint_vel_rad_s=change(state.joint_vel_rad_s),
        joint_effort_nm=change(state.joint_effort_nm),
    )


def _cached(every_s: float, for_s: float) -> ReadingChange:
    """Old numbers under new stamps, again and again for a while."""
    kept: list[RobotState] = []

    def change(state: RobotState) -> RobotState:
        if state.stamp_s % every_s >= for_s or not kept:
            kept[:] = [state]
            return state
        return replace(kept[0], stamp_s=state.stamp_s)

    return change


_HALF_TURN = np.array([0.0, 1.0, 0.0, 0.0])
"""About the x axis, (w, x, y, z)."""


def _upside_down(state: RobotState) -> RobotState:
    """An IMU that is mounted turned about x by half a turn."""
    flip = np.array([1.0, -1.0, -1.0])
    w, x, y, z = state.quat_base_to_world_wxyz
    return replace(
        state,
        ang_vel_base_in_base_rad_s=state.ang_vel_base_in_base_rad_s * flip,
        lin_acc_base_in_base_m_s2=state.lin_acc_base_in_base_m_s2 * flip,
        quat_base_to_world_wxyz=np.array([-x, w, z, -y]),
    )


def reading_faults(rng: Generator, joints: tuple[str, ...]) -> list[Fault]:
    """Faults of what a robot reports, which the doctor must name."""
    n = len(joints)
    order, flipped, reversed_vel = _some_order(rng, n, 2), int(rng.integers(n)), int(rng.integers(n))
    sign, vel_sign, offset = np.ones(n), np.ones(n), np.zeros(n)
    sign[flipped] = vel_sign[reversed_vel] = -1
    shifted = int(rng.integers(n))
    offset[shifted] = float(rng.choice([-1, 1]) * rng.uniform(0.08, 0.2))

    def world_gyro(state: RobotState) -> RobotState:
        rotation = rotation_matrix(state.quat_base_to_world_wxyz[None])[0]
        return replace(state, ang_vel_base_in_base_rad_s=rotation @ state.ang_vel_base_in_base_rad_s)

    return [
        Fault("two joints exchanged in the readings", "permutation", ("joint order and sign",), _moved(order, joints),
              change_reading=lambda s: _joints(s, lambda x: x[order])),
        Fault("readings in the vendor's order", "permutation", ("joint order and sign",), joints,
              change_reading=lambda s: _joints(s, lambda x: x[list(SDK_ORDER)])),
        Fault("a joint's sign", "sign", ("joint order and sign",), (joints[flipped],),
              change_reading=lambda s: _joints(s, lambda x: x * sign)),
        Fault("sign of one velocity", "sign", ("joint velocities",), (joints[reversed_vel],),
              change_reading=lambda s: replace(s, joint_vel_rad_s=s.joint_vel_rad_s * vel_sign)),
        Fault("velocities in degrees", "scale", ("joint velocities",), (),
              change_reading=lambda s: replace(s, joint_vel_rad_s=np.degrees(s.joint_vel_rad_s))),
        Fault("quaternion as xyzw", "frame", ("orientation",), (),
              change_reading=lambda s: replace(
                  s, quat_base_to_world_wxyz=s.quat_base_to_world_wxyz[[1, 2, 3, 0]])),
        Fault("gyroscope in the world's frame", "frame", ("gyroscope",), (), change_reading=world_gyro),
        Fault("accelerometer in g", "scale", ("accelerometer",), (),
              change_reading=lambda s: replace(s, lin_acc_base_in_base_m_s2=s.lin_acc_base_in_base_m_s2 / 9.81)),
        Fault("IMU upside down", "frame", ("IMU mounting",), (), change_reading=_upside_down),
        Fault("a joint's offset", "offset", ("joint order and sign",), (joints[shifted],),
              change_reading=lambda s: replace(s, joint_pos_rad=s.joint_pos_rad + offset)),
        Fault("commands act 40 ms late", "delay", ("commands",), (), change_reading=lambda s: s,
              options={"command_delay_s": 0.04}),
        Fault("readings from a cache", "timing", ("state",), (), change_reading=_cached(1.0, 0.2)),
        Fault("readings 80 ms old", "timing", ("state",), (), change_reading=lambda s: s, options={"delay_s": 0.08}),
    ]  # fmt: skip

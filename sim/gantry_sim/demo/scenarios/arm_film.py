"""Recorded episodes of an arm as a film: poses put into the simulator's model, without physics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_deploy.actions.kinematics import ArmKinematics
from gantry_deploy.contract.arm_spec import BODY_TARGET
from gantry_deploy.report import encode_mp4
from gantry_hardware.model.chain import Chain
from gantry_sim.backends.workbench_robot import OTHER_FINGER
from gantry_sim.demo.measured import MeasuredEpisode
from gantry_sim.robots.actuated_scene import SceneIndex, robot_with_motors
from gantry_sim.tasks.manipulation.layouts import LAYOUTS
from gantry_sim.tasks.manipulation.workbench import WORKBENCHES, add_workbench
from gantry_sim.viewing.camera import Arrow, TrackingCamera, View
from gantry_sim.viewing.replay import FILM_PX

FPS = 20.0
"""Of the film; that of the control loop, so that nothing is left out or shown twice."""
LOOK_AT_M, LOOK_HEIGHT_M = np.array([0.22, 0.0, 0.0]), 0.0
"""Point that the camera looks at, in the arm's base frame, and the height of the ground that it takes to be there."""
VIEW = View(azimuth_deg=140.0, elevation_deg=-22.0, distance_m=0.85)
"""From ahead and the arm's right."""
TABLE_RGBA = (0.9, 0.87, 0.82, 1.0)
"""A lighter table than that of training, on which a dark arm can be seen."""
BASE_RGBA, ADDED_RGBA = (0.85, 0.45, 0.05, 1.0), (0.12, 0.56, 0.39, 1.0)
"""Arrows of what the base wants and of what is added to it."""
ARROW_M, BESIDE_M = 0.22, np.array([0.0, -0.08, 0.04])
"""Length of an arrow for the largest step, and where it begins, seen from the end effector."""
MAGNIFIED = 3.0
"""Corrections are small; their arrows are this much longer."""


def film_arm(episodes: Sequence[MeasuredEpisode], task: str, share: Callable[[float], None]) -> bytes:
    """All episodes one after the other, in real time, as MP4.

    Args:
        episodes: Read from the recording, one or more.
        task: Whose things lie on the table.
        share: Takes the share that is done.

    Raises:
        GantryError: If this machine cannot draw off screen, or there is no such task.
    """
    total = sum(len(_rows(episode)) for episode in episodes)

    def frames() -> Iterator[NDArray[np.uint8]]:
        for count, picture in enumerate(_pictures(episodes, task), start=1):
            yield picture
            share(count / total)

    return encode_mp4(frames(), FPS)


def _pictures(episodes: Sequence[MeasuredEpisode], task: str) -> Iterator[NDArray[np.uint8]]:
    bench = WORKBENCHES[LAYOUTS[task]().task]
    spec = episodes[0].spec
    model = robot_with_motors(spec, furnish=lambda scene: add_workbench(scene, bench))
    data, index = mujoco.MjData(model), SceneIndex(model, spec)
    fixtures = [int(model.body(name).mocapid[0]) for name in bench.mocap_bodies]
    starts = [int(model.joint(name).qposadr[0]) for name in bench.thing_bodies]
    other = int(model.joint(OTHER_FINGER).qposadr[0])
    model.geom("floor").rgba[:] = TABLE_RGBA
    # Smoothing edges costs more than all the rest where there is no graphics card.
    model.vis.quality.offsamples = 0
    camera = TrackingCamera(model, *FILM_PX, 0.0, VIEW)
    arrows = _Arrows(episodes[0])
    try:
        for number, episode in enumerate(episodes, start=1):
            for fixture, place in zip(fixtures, episode.fixtures_in_base_m, strict=False):
                data.mocap_pos[fixture] = (*place[:2], 0.0)
            for row in _rows(episode):
                joints = episode.shown_joint_pos_rad[row]
                data.qpos[index.joint_qpos] = joints
                data.qpos[other] = -joints[-1]
                for start, pose in zip(starts, episode.shown_things_in_base[row], strict=True):
                    data.qpos[start : start + 7] = pose
                mujoco.mj_kinematics(model, data)
                words = _caption(episode, number, len(episodes), float(episode.shown_s[row]))
                yield camera.picture(data, LOOK_AT_M, arrows.at(episode, row), words, ground_m=LOOK_HEIGHT_M)
    finally:
        camera.close()


def _rows(episode: MeasuredEpisode) -> list[int]:
    """Of what is shown, those at the times of the frames."""
    frames = np.arange(math.floor(episode.shown_s[-1] * FPS) + 1) / FPS
    rows = np.clip(np.searchsorted(episode.shown_s, frames - 0.5 / FPS), 0, len(episode.shown_s) - 1)
    return [int(row) for row in rows]


def _caption(episode: MeasuredEpisode, number: int, total: int, time_s: float) -> str:
    done_s = episode.done_after_s
    lines = [f"episode {number} of {total}   {min(time_s, float(episode.time_s[-1])):4.1f} s"]
    lines += [episode.instruction] if episode.instruction else []
    if done_s is not None and time_s >= done_s:
        lines.append(f"done after {done_s:.1f} s")
    elif time_s > episode.time_s[-1]:
        lines.append(episode.trial.reason)
    return "\n".join(lines)


class _Arrows:
    """Beside the end effector: where the base wants it to go, and where the correction moves that."""

    def __init__(self, found: MeasuredEpisode) -> None:
        self._kinematics = None
        if found.contract.action.kind == BODY_TARGET:
            chain = found.spec.body_as(Chain)
            self._kinematics = ArmKinematics(chain, np.zeros((1, 1), np.float32))
            self._joints = [found.spec.joint_index(name) for name in chain.joint_names]

    def at(self, episode: MeasuredEpisode, row: int) -> tuple[Arrow, ...]:
        """None of a policy that moves joints, or that has no base, or is over."""
        base, added = episode.base_action, episode.correction
        time_s = episode.shown_s[row]
        if self._kinematics is None or base is None or added is None or time_s > episode.time_s[-1] + 1e-6:
            return ()
        tick = int(np.clip(np.searchsorted(episode.time_s, time_s), 0, len(base) - 1))
        joints = episode.shown_joint_pos_rad[row][self._joints].astype(np.float32)[None]
        start = self._kinematics.forward(joints)[0][0].astype(np.float64) + BESIDE_M
        wanted = start + ARROW_M * base[tick, :3]
        moved = start + ARROW_M * MAGNIFIED * added[tick, :3]
        return Arrow(start, wanted, BASE_RGBA), Arrow(start, moved, ADDED_RGBA)

"""Camera images of a policy: their sources, and the age from which one is too old to act on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.builder import needed_signals
from gantry_deploy.observations.scene import SCENE_SIGNALS
from gantry_deploy.policy.onnx_policy import Images
from gantry_hardware.backends.backend import Robot
from gantry_hardware.model.capabilities import FollowsScene, HasImages, capability

STALE_S = 0.5
"""A picture that is older is not acted on: the policy ends as with any input that it lacks."""
FROZEN_S = 1.0
"""A camera that shows the very same picture for so long, while the robot moves, is frozen, whatever its stamps say."""
MOVING_RAD_S = 0.1
"""A robot with a joint that is faster moves."""


@dataclass(frozen=True)
class Picture:
    """A colour image."""

    stamp_s: float
    """Capture time, or the time at which it became known, on the robot's clock."""
    pixels: NDArray[np.uint8]
    """Shape (3, height, width), red, green and blue, rows from above."""


def watch_scene(contract: PolicyContract, robot: Robot, *, note: bool = False) -> None:
    """Have a robot's connection wait for what a policy sees beside the joints, where others see it.

    Args:
        contract: The policy's.
        robot: Not connected yet.
        note: Listen to the scene also where the policy does not see it, for the recording.
    """
    following = capability(robot, FollowsScene)
    if following is None:
        return
    if note:
        following.note_scene()
    if "object_pose_in_base" in needed_signals(contract):
        following.follow_object()
    if SCENE_SIGNALS.keys() & needed_signals(contract).keys():
        following.follow_scene()
    if contract.cameras:
        following.follow_pictures(tuple(camera.name for camera in contract.cameras))


class PictureSource:
    """Gives a control loop the pictures that a contract names.

    Args:
        contract: Has cameras.
        robot: Takes the pictures.
    """

    def __init__(self, contract: PolicyContract, robot: HasImages) -> None:
        self._names = tuple(camera.name for camera in contract.cameras)
        self._robot = robot
        self._last: dict[str, NDArray[np.uint8]] = {}
        self._same_s = dict.fromkeys(self._names, 0.0)
        self._asked_s: float | None = None

    def newest(self, now_s: float, *, moving: bool = False) -> Images:
        """The newest picture of each camera; the network looks at their sizes.

        Args:
            now_s: On the robot's clock.
            moving: Whether the robot moves, so that pictures must change.

        Raises:
            ContractError: If a camera has taken none, or none for too long, or is frozen.
        """
        pictures = self._robot.read_pictures()
        for name in self._names:
            if name not in pictures:
                raise ContractError(f"Camera '{name}' has shown nothing yet; there are: {_listed(pictures)}.")
            age_s = now_s - pictures[name].stamp_s
            if not age_s <= STALE_S:
                raise ContractError(
                    f"Camera '{name}' has shown nothing new for {age_s:.2f} s, allowed are {STALE_S} s."
                )
        images = {name: pictures[name].pixels for name in self._names}
        self._watch(images, now_s, moving)
        return images

    def _watch(self, images: Images, now_s: float, moving: bool) -> None:
        """Refuse pictures (3, height, width) uint8 that do not change although the robot moves."""
        # A policy that was not asked for a while saw nothing then, whether it stood still or not.
        passed_s = 0.0 if self._asked_s is None else min(max(0.0, now_s - self._asked_s), STALE_S)
        self._asked_s = now_s
        for name, pixels in images.items():
            last = self._last.get(name)
            if last is None or not np.array_equal(last, pixels):
                self._last[name], self._same_s[name] = pixels.copy(), 0.0
            elif moving:
                self._same_s[name] += passed_s
                if self._same_s[name] > FROZEN_S:
                    raise ContractError(
                        f"Camera '{name}' is frozen: it has shown the very same picture for "
                        f"{self._same_s[name]:.1f} s while the robot moved, allowed are {FROZEN_S} s."
                    )


def make_picture_source(contract: PolicyContract, robot: Robot) -> PictureSource | None:
    """The source of a policy's pictures; None for a policy without cameras.

    Raises:
        ContractError: If the policy has cameras and the robot has none.
    """
    if not contract.cameras:
        return None
    pictured = capability(robot, HasImages)
    if pictured is None:
        names = ", ".join(camera.name for camera in contract.cameras)
        raise ContractError(f"The policy sees the cameras {names}; a {type(robot).__name__} takes no pictures.")
    return PictureSource(contract, pictured)


def _listed(pictures: Mapping[str, Picture]) -> str:
    return ", ".join(sorted(pictures)) or "(nothing)"

"""Teacher that is a bundle: the network that was exported, on this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.openpi.description import PolicyDescription, description_of
from gantry_deploy.openpi.planner import Planner
from gantry_deploy.policy.policy import open_policy
from gantry_hardware.files.text import path_text
from gantry_policies.teachers.teacher import TeacherQuestion, check_question, checked_plan

FloatArray = NDArray[np.float32]


class BundleTeacher:
    """Teacher of a bundle. Its state is the contract's observation vector; a residual answers one action.

    Args:
        path: Folder or zip, or ``pretrained:NAME``.

    Raises:
        GantryError: If there is no intact bundle, or network and contract do not fit.
    """

    def __init__(self, path: str | Path) -> None:
        bundle = load_bundle(find_bundle(path))
        self.contract = bundle.contract
        """Contract of the bundle."""
        self._name = f"bundle:{path_text(path)}"
        self._planner = Planner(open_policy(bundle))
        self._description = description_of(bundle.contract)

    @property
    def description(self) -> PolicyDescription:
        """Description that follows from the contract."""
        return self._description

    def plan(self, question: TeacherQuestion) -> FloatArray:
        """Plans of shape (N, T, n) with T the horizon, dimensionless, within the contract's clip.

        Raises:
            TeacherError: If the question does not fit the contract.
            PolicyError: If an action is not finite.
        """
        check_question(question, self._description, self._name)
        names = [camera.name for camera in self.contract.cameras]
        pictures = {name: question.images[name].transpose(0, 3, 1, 2) for name in names}
        plans = []
        for row in range(question.rows):
            self._planner.reset()
            images = {name: np.ascontiguousarray(batch[row]) for name, batch in pictures.items()}
            self._planner(question.state[row : row + 1], images or None)
            plans.append(self._planner.plan)
        return checked_plan(np.stack(plans), question.rows, self._description, self._name)

    def close(self) -> None:
        """Nothing to release."""

"""Pictures, numbers and words of all environments as a teacher is shown them, whatever the student itself sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.observations.builder import ObservationBuilder
from gantry_policies.teachers.teacher import TeacherQuestion
from gantry_sim.envs.step_env import ArmStepEnv
from gantry_sim.tasks.manipulation.eyes import BenchCameras
from gantry_sim.tasks.manipulation.terms import ACTION


def show_arm(env: ArmStepEnv, contract: PolicyContract) -> Callable[[], TeacherQuestion]:
    """A function that shows the present state of an arm's environments.

    Args:
        env: The environments.
        contract: Of a policy that sees what the teacher is to see: its cameras, and its numbers as the state.

    Raises:
        GantryError: If there are cameras and this machine cannot draw.
    """
    builder = ObservationBuilder(contract, torch.zeros(env.num_envs, 1, device=env.device))
    names = tuple(camera.name for camera in contract.cameras)
    eyes = BenchCameras(env.env, names, contract.cameras[0].height) if names else None

    def show() -> TeacherQuestion:
        env.state.refresh()
        action: Any = env.env.action_manager.get_term(ACTION)
        builder.reset()  # A teacher remembers nothing between two questions.
        state = builder(env.state.signals(action.raw_action)).cpu().numpy().astype(np.float32)
        pictures = {} if eyes is None else eyes.see()
        images = {name: np.ascontiguousarray(seen.permute(0, 2, 3, 1).cpu().numpy()) for name, seen in pictures.items()}
        return TeacherQuestion(images, state, env.texts())

    return show

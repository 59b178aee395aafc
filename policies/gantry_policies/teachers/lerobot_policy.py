"""Teacher that is a policy of LeRobot in this process: ACT, diffusion, pi0 or SmolVLA from a folder.

LeRobot is imported when such a teacher is made: it is an extra, and its newer versions need a later Python.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gantry_deploy.lerobot.plugins import INSTALL
from gantry_deploy.openpi.description import PolicyDescription
from gantry_hardware.files.text import LINE_LIMIT, path_text, printable
from gantry_policies.teachers.lerobot_folder import PIPELINES, STATE, read_folder
from gantry_policies.teachers.teacher import TeacherError, TeacherQuestion, check_question, checked_plan

FloatArray = NDArray[np.float32]


class LerobotTeacher:
    """Teacher of a LeRobot policy with its own steps before and after the network, so that units are the dataset's.

    It remembers nothing: a policy that sees several frames sees the present one several times. Diffusion and flow
    matching draw noise from torch's generator, so that two answers to one question differ.

    Args:
        path: Folder with ``config.json``, ``model.safetensors`` and both processors.
        device: Device that the network runs on.

    Raises:
        TeacherError: If the folder is not complete, its normaliser's statistics are missing, the weights do not fit, or
            ``lerobot`` is not installed.
        UnknownNameError: If the policy is of a type that is not supported.
    """

    def __init__(self, path: str | Path, device: str = "cpu") -> None:
        self._folder, self._device = read_folder(path), device
        self._name = f"lerobot:{path_text(path)}"
        try:
            factory = importlib.import_module("lerobot.policies.factory")
            configs = importlib.import_module("lerobot.configs.policies")
        except ImportError as error:
            raise TeacherError(f"{self._name} needs the package lerobot ({error}): {INSTALL}.") from error
        place = str(self._folder.path)
        try:
            config = configs.PreTrainedConfig.from_pretrained(place, local_files_only=True)
            config.device = device
            make = factory.get_policy_class(self._folder.kind)
            # Weights that are missing would stay random, and only a log would tell.
            self._policy: Any = make.from_pretrained(place, config=config, local_files_only=True, strict=True)
            before, after = (
                {"device_processor": {"device": place_of}} if self._folder.devices[name] else {}
                for name, place_of in zip(PIPELINES, (device, "cpu"), strict=True)
            )
            self._before, self._after = factory.make_pre_post_processors(
                config, pretrained_path=place, preprocessor_overrides=before, postprocessor_overrides=after
            )
        except Exception as error:  # LeRobot, draccus, torch and transformers raise whatever they like
            words = printable(" ".join(str(error).split()), LINE_LIMIT // 2)
            raise TeacherError(f"{self._name} cannot be loaded: {type(error).__name__}: {words}") from error
        self._policy.to(device).eval()

    @property
    def description(self) -> PolicyDescription:
        """Description that follows from the policy's configuration."""
        return self._folder.description

    @torch.no_grad()
    def plan(self, question: TeacherQuestion) -> FloatArray:
        """Plans of shape (N, T, n) with T the horizon, in the units of the dataset that the policy was trained on.

        Raises:
            TeacherError: If the question does not fit the policy, or the policy fails.
        """
        check_question(question, self.description, self._name)
        batch: dict[str, Any] = {"task": list(question.instructions)}
        if self.description.state_size:
            batch[STATE] = torch.tensor(question.state)
        for camera, key in self._folder.cameras.items():
            pictures = torch.tensor(np.ascontiguousarray(question.images[camera].transpose(0, 3, 1, 2)))
            batch[key] = pictures.to(torch.float32) / 255.0
        try:
            self._policy.reset()
            actions = self._after(self._planned(self._before(batch)))
        except Exception as error:  # likewise
            words = printable(" ".join(str(error).split()), LINE_LIMIT // 2)
            raise TeacherError(f"{self._name} fails: {type(error).__name__}: {words}") from error
        plan = np.asarray(actions.to("cpu", torch.float32))
        return checked_plan(plan, question.rows, self.description, self._name)

    def close(self) -> None:
        """Release the network's memory."""
        self._policy = None

    def _planned(self, batch: dict[str, Any]) -> torch.Tensor:
        """Actions (N, horizon, n), normalised."""
        if self._folder.kind != "diffusion":
            return self._policy.predict_action_chunk(batch)
        # Its past is filled by the first call; the others take the rest of the plan from its queue.
        steps = range(self.description.horizon or 1)
        return torch.stack([self._policy.select_action(dict(batch)) for _ in steps], dim=1)

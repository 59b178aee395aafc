"""Scripted person of the manipulation tasks: an expert that steps in when progress stalls, and is sometimes wrong.

It knows what the policy's observation is made of and nothing else, so that it corrects one simulated robot through a
session as a device does, at the workbench or over ROS 2.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gantry_deploy.actions.arm import ArmDecoder
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import TeleopError
from gantry_deploy.observations.signals import Signals
from gantry_deploy.policy.runner import PolicyOutput
from gantry_deploy.teleop.operator import OperatorInput
from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.structured import from_plain
from gantry_sim.tasks.manipulation.layouts import LAYOUTS
from gantry_sim.tasks.manipulation.persons.batch import PersonCfg, ScriptedHelp
from gantry_sim.tasks.manipulation.rules import RULES
from gantry_sim.tasks.manipulation.workbench import WORKBENCHES


class SeenState:
    """State of one arm as its observation shows it, for the experts and rules of training; one row each.

    Args:
        task: Name of the task, for example ``yam-lift``.
        contract: Of its policies.
    """

    def __init__(self, task: str, contract: PolicyContract) -> None:
        seen = [name for name, make_cfg in LAYOUTS.items() if not WORKBENCHES[make_cfg().task].is_told]
        if task not in seen:
            raise UnknownNameError("task of device 'scripted' (cars have 'scripted-driver')", task, seen)
        self.cfg, self.contract = LAYOUTS[task](), contract
        self.rule = RULES[self.cfg.task](self.cfg)
        self.decoder = ArmDecoder(contract, torch.zeros(1, 1))
        self.gripper = len(contract.joint_names) - 1
        self.goal = torch.zeros(1, len(contract.command.names))
        self.joint_pos = torch.tensor([contract.default_pos_rad])
        self.object_pose = torch.tensor([[0.3, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]])
        self.object_speed = self.others_moved_m = torch.zeros(1)
        self.verb = torch.zeros(1, dtype=torch.long)
        self._update()

    def see(self, signals: Signals) -> None:
        """Take the signals of a step."""
        self.joint_pos = _row(signals.joint_pos_rad)
        before, self.object_pose = self.object_pose[:, :3], _row(signals.object_pose_in_base)
        self.object_speed = (self.object_pose[:, :3] - before).norm(dim=-1) * self.contract.rate_hz
        self.goal = _row(signals.command)
        targets = signals.joint_pos_rad if signals.joint_target_rad is None else signals.joint_target_rad
        self.decoder.reset(_row(targets))
        self._update()

    def refresh(self) -> None:
        """Nothing: :meth:`see` has done it."""

    @property
    def object_pos(self) -> Tensor:
        """Position of the object in the arm's base frame, (1, 3), m."""
        return self.object_pose[:, :3]

    @property
    def gripper_m(self) -> Tensor:
        """Position of the driven finger, half of the gripper's opening, (1,), m."""
        return self.joint_pos[:, self.gripper]

    def _update(self) -> None:
        self.ee_pos, self.ee_rotation = self.decoder.ee_pose(self.joint_pos)
        self.object_from_ee = self.object_pos - self.ee_pos
        self.goal_from_object = self.goal - self.object_pos if self.goal.shape[1] else self.goal


class ScriptedPerson:
    """A device that needs no hand, see :class:`gantry_deploy.teleop.operator.WatchingDevice`.

    Args:
        contract: Of the policy that is corrected.
        task: Name of the task; the contract's own if empty.
        seed: Of errors and attention.
        cfg: Fields of :class:`PersonCfg`.
    """

    name = "scripted"

    def __init__(self, contract: PolicyContract, task: str = "", seed: int = 0, **cfg: float) -> None:
        self.cfg = from_plain(PersonCfg, cfg, f"device '{self.name}'", TeleopError)
        self._state = SeenState(task or contract.provenance.task or "", contract)
        self._help = ScriptedHelp(self._state, self.cfg, contract.dt_s, seed)  # type: ignore[arg-type]
        self._acts = False

    def connect(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to release."""

    def describe(self) -> list[str]:
        """The settings."""
        return [f"{item.name}: {getattr(self.cfg, item.name):g}" for item in fields(self.cfg)]

    def begin(self) -> None:
        """An attempt begins."""
        self._help.begin(torch.ones(1, dtype=torch.bool))
        self._acts = False

    def watch(self, seen: PolicyOutput, acts: bool) -> None:
        """Look at a step, and decide whether to act in the next one; ``acts`` tells whether the person acts in this."""
        self._state.see(seen.signals)
        self._acts = bool(self._help.watch(torch.tensor([acts])))

    def read(self, now_s: float) -> OperatorInput:
        """Whether the person acts; the action itself is asked for when the step has been seen."""
        return OperatorInput(now_s, self._acts)

    def act(self, seen: PolicyOutput) -> NDArray[np.float32]:
        """Action (a,) of the person in this step, dimensionless, in the policy's own frame."""
        return self._help.act()[0].numpy().astype(np.float32)

    def statistics(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"corrections": self._help.corrections, "wrong": self._help.wrong_ones, **vars(self.cfg)}


def _row(values: Any) -> Tensor:
    """One row (1, ...) of an array of any shape and unit, single precision."""
    return torch.from_numpy(np.asarray(values, dtype=np.float32))

"""Bundle behind openpi's protocol: observations of a message to actions, one memory for each client."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.cli.discovery import DISTRIBUTION
from gantry_deploy.contract.parts import CameraInput
from gantry_deploy.contract.policy_contract import INSTRUCTION_TERM, PolicyContract
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.errors import PolicyError
from gantry_deploy.language.instructions import tokens_of
from gantry_deploy.openpi.answers import ACTIONS
from gantry_deploy.openpi.description import METADATA_KEY, description_of
from gantry_deploy.openpi.measured import COMMAND, JOINT_TARGET, MAP, PREFIX, MeasuredState, numbers
from gantry_deploy.openpi.planner import Planner
from gantry_deploy.policy.onnx_policy import Images
from gantry_deploy.policy.policy import Policy, open_policy
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.errors import unknown_name_text
from gantry_hardware.files.text import plain_text
from gantry_hardware.robots import robot_spec

FloatArray = NDArray[np.float32]

STATE, IMAGES, PROMPT = f"{PREFIX}state", f"{PREFIX}images/", "prompt"
"""Keys of the contract's observation vector, of pictures by camera, and of the instruction."""
ROWS, RESET = "gantry/rows", "gantry/reset"
"""Keys of the number of questions in a message, and of the beginning of an episode."""
JOINT_TARGETS = "joint_targets"
"""Key of the joint targets in an answer."""
SERVED_KEY = "served"
"""Key of what the server tells in its metadata beside the description."""
MAX_ROWS = 64
"""Questions that one message may hold."""


class ServedPolicy:
    """A bundle's policy for any number of clients, which ask one after another.

    Args:
        bundle: A verified bundle.
        instruction: Text of the task that the policy does; a client that asks for another one is refused. Empty where
            prompts are not looked at.

    Raises:
        PolicyError: If the network and the contract do not fit.
        GantryError: If policies of the embodiment are not served.
    """

    def __init__(self, bundle: Bundle, instruction: str = "") -> None:
        embodiment_of(bundle.contract).require("serve")
        self.contract = bundle.contract
        self.instruction = instruction
        self.measured = MeasuredState(self.contract)
        """Reader of measured states."""
        self._bundle, self._policy = bundle, open_policy(bundle)
        description = description_of(self.contract)
        told = description.to_metadata()
        if not Planner(self._policy).remembers:
            told[METADATA_KEY]["max_rows"] = MAX_ROWS
        self.metadata: dict[str, Any] = {**told, SERVED_KEY: self._served()}
        """Metadata that a client gets first."""

    def client(self) -> ServedClient:
        """A client with a memory of its own, which is empty."""
        return ServedClient(self, self._policy.copy())

    def runner(self, planner: Planner) -> PolicyRunner:
        """A runner for measured states around a client's planner.

        Raises:
            GantryError: If the contract's robot is not known here, or another one.
        """
        return PolicyRunner(self._bundle, robot_spec(self.contract.robot), planner)

    def _prompt(self) -> str:
        """Sentence on the instruction, for the metadata."""
        if self.instruction:
            return f"must be {plain_text(self.instruction, 1000)}"
        if self.contract.instruction is None:
            return "is not looked at"
        examples = "; ".join(self.contract.instruction.examples[:3])
        return f"is followed, for example: {plain_text(examples, 1000)}"

    def _served(self) -> dict[str, Any]:
        contract = self.contract
        observation = {
            STATE: f"({contract.observation_size},) float32, the contract's observation: clipped, scaled, stacked"
        }
        measured = {
            PREFIX + name: f"{key.shape}, {key.unit}{'' if key.required else ', optional'}"
            for name, key in self.measured.keys.items()
        }
        pictures = {
            IMAGES + item.name: f"({item.height}, {item.width}, 3) uint8, red, green, blue" for item in contract.cameras
        }
        told = {
            "server": f"gantry {version(DISTRIBUTION)}",
            "robot": contract.robot,
            "task": contract.provenance.task,
            "policy_sha256": hashlib.sha256(self._bundle.model_bytes).hexdigest(),
            "observation": observation,
            "pictures": pictures,
            "actions": (
                f"'{ACTIONS}', ({contract.planned_steps() or 1}, {contract.action_size}) float32, dimensionless: "
                f"times action_scale plus action_offset is the physical amount, at {contract.rate_hz:g} Hz"
            ),
            "prompt": self._prompt(),
        }
        if self.measured.unavailable:
            return told
        if contract.planned_steps() is None:
            told["joint_targets"] = (
                f"'{JOINT_TARGETS}', (1, {len(contract.joint_names)}) float32, rad, a gripper in m, beside the actions "
                "where measured states were sent, which must be in every step"
            )
        return told | {"measured": measured, "joint_names": list(contract.joint_names)}


class ServedClient:
    """One client's side of a served policy.

    Args:
        served: The policy.
        policy: With a memory of its own.
    """

    def __init__(self, served: ServedPolicy, policy: Policy) -> None:
        self._served, self._planner = served, Planner(policy)
        self._runner: PolicyRunner | None = None
        contract = served.contract
        self._cameras: Mapping[str, CameraInput] = {IMAGES + item.name: item for item in contract.cameras}
        measured = {PREFIX + name for name in served.measured.keys}
        self._known = {STATE, *self._cameras, *measured}
        self._text = ""
        self._tokens: FloatArray | None = None
        self._words = _columns_of(contract, INSTRUCTION_TERM)

    def infer(self, message: Mapping[Any, Any]) -> dict[str, Any]:
        """Answer a message: ``actions`` (horizon, n) float32, or (rows, horizon, n), dimensionless, within the clip.

        Raises:
            GantryError: If the observation is none that the policy takes, naming the key, what was found, and what
                was expected.
        """
        self._check(message)
        if message.get(RESET):
            self.reset()
        self._hear(message)
        if (rows := message.get(ROWS)) is not None:
            return {ACTIONS: self._batch(message, rows)}
        images = self._images(message)
        if STATE in message:
            state = _state(message[STATE], (self._served.contract.observation_size,))
            self._planner(self._told(state), images)
            return {ACTIONS: self._planner.plan}
        return self._step(message, images)

    def reset(self) -> None:
        """Forget everything: an episode begins."""
        self._planner.reset()
        if self._runner is not None:
            self._runner.reset()

    def _hear(self, message: Mapping[Any, Any]) -> None:
        """Take the instruction of a message; a policy of measured states has to be told one before anything else."""
        spec, prompt = self._served.contract.instruction, message.get(PROMPT)
        if spec is None:
            return
        if prompt is None:
            if STATE not in message and not self._text:
                raise PolicyError(f"'{PROMPT}' is missing: the policy follows an instruction.")
            return
        if (text := str(prompt)) != self._text:
            self._tokens, self._text = tokens_of(spec, text), text
            if self._runner is not None:
                self._runner.instruct(text)

    def _told(self, states: FloatArray) -> FloatArray:
        """Observations (rows, obs), scaled, with the tokens of the instruction in their place."""
        if self._tokens is not None:
            states = states.copy()
            states[:, self._words] = self._tokens
        return states

    def _step(self, message: Mapping[Any, Any], images: Images | None) -> dict[str, Any]:
        """One step of the runner on a measured state."""
        served = self._served
        found = served.measured.read(message)
        if self._runner is None:
            self._runner = served.runner(self._planner)
            if served.contract.instruction is not None:
                self._runner.instruct(self._text)
        runner = self._runner
        if JOINT_TARGET in found:
            runner.follow(found[JOINT_TARGET])
        command = found.get(COMMAND, np.zeros(0))
        step = runner.step(served.measured.state(found, runner.time_s), command, found.get(MAP), images)
        answer: dict[str, Any] = {ACTIONS: self._planner.plan}
        if len(self._planner.plan) == 1:
            answer[JOINT_TARGETS] = step.target.pos_rad[None].astype(np.float32)
        return answer

    def _batch(self, message: Mapping[Any, Any], rows: Any) -> FloatArray:
        """Answers (rows, horizon, n), dimensionless, of questions that are independent of one another."""
        if self._planner.remembers:
            raise PolicyError(f"'{ROWS}': a residual policy remembers its plan, and takes one question at a time.")
        if type(rows) is not int or not 1 <= rows <= MAX_ROWS:
            raise PolicyError(f"'{ROWS}' is {plain_text(rows)}, expected 1 to {MAX_ROWS}.")
        if STATE not in message:
            raise PolicyError(
                f"'{STATE}' is missing: several questions at once are asked by the contract's observation."
            )
        size = self._served.contract.observation_size
        states = self._told(numbers(STATE, message[STATE], (rows, size)).astype(np.float32))
        pictures = {name: self._pictures(message, name, (rows,)) for name in self._cameras}
        plans = []
        for i in range(rows):
            images = {name.removeprefix(IMAGES): _channels_first(batch[i]) for name, batch in pictures.items()}
            self._planner(states[i : i + 1], images or None)
            plans.append(self._planner.plan)
        return np.stack(plans)

    def _images(self, message: Mapping[Any, Any]) -> Images | None:
        return {
            name.removeprefix(IMAGES): _channels_first(self._pictures(message, name, ())) for name in self._cameras
        } or None

    def _pictures(self, message: Mapping[Any, Any], name: str, rows: tuple[int, ...]) -> NDArray[np.uint8]:
        camera = self._cameras[name]
        wanted = (*rows, camera.height, camera.width, 3)
        picture = message.get(name)
        if picture is None:
            raise PolicyError(f"'{name}' is missing: a picture, uint8 of shape {wanted}.")
        if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8 or picture.shape != wanted:
            kind = getattr(picture, "dtype", type(picture).__name__)
            hint = ""
            if getattr(picture, "shape", ()) == (*rows, 3, camera.height, camera.width) != wanted:
                hint = " Its channels come first; they belong last."
            raise PolicyError(
                f"'{name}' is {kind} of shape {getattr(picture, 'shape', ())}, expected uint8 of shape {wanted}.{hint}"
            )
        return picture

    def _check(self, message: Mapping[Any, Any]) -> None:
        """Refuse keys that would be overlooked, and a task that the policy does not do."""
        for key in message:
            if not isinstance(key, str) or not key.startswith((PREFIX, "gantry/")):
                continue
            if key not in self._known and key not in (ROWS, RESET):
                raise PolicyError(unknown_name_text("key of an observation", key, {*self._known, ROWS, RESET}))
        sent = sorted(self._known & message.keys() - self._cameras.keys() - {STATE})
        if STATE in message and sent:
            raise PolicyError(f"'{STATE}' already holds all of the robot's state; leave out: {', '.join(sent)}.")
        if STATE not in message and not sent:
            raise PolicyError(f"The observation holds neither '{STATE}' nor '{PREFIX}joint_position'.")
        prompt, task = message.get(PROMPT), self._served.instruction
        if prompt is not None and not isinstance(prompt, (str, np.str_)):
            raise PolicyError(f"'{PROMPT}' is {plain_text(prompt)}, expected a text.")
        if task and prompt != task:
            given = "is missing" if prompt is None else f"is {plain_text(str(prompt), 300)}"
            raise PolicyError(f"'{PROMPT}' {given}; this policy does one task: {plain_text(task, 300)}.")


def _columns_of(contract: PolicyContract, name: str) -> slice:
    """Columns of a term without history in the observation; none where the contract has no such term."""
    start = 0
    for term in contract.observations:
        if term.name == name:
            return slice(start, start + term.size)
        start += term.size * term.history
    return slice(0, 0)


def _state(value: Any, shape: tuple[int, ...]) -> FloatArray:
    return numbers(STATE, value, shape).astype(np.float32)[None]


def _channels_first(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(picture.transpose(2, 0, 1))

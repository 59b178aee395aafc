"""Instructions for an arm's episodes: scenes in words and pictures, and sentences that a person types for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.contract.parts import InstructionSpec
from gantry_deploy.errors import InstructionError
from gantry_deploy.language.instructions import tokens_of, unknown_words
from gantry_deploy.observations.scene import THINGS_SIGNAL, ZONES_SIGNAL
from gantry_hardware.robots import robot_spec
from gantry_sim.backends.workbench_robot import BenchRobot
from gantry_sim.demo import stages
from gantry_sim.tasks.manipulation.workbench import FRONT, WORKBENCHES, Workbench

PICTURE_PX = 480
"""Rows and columns of a scene's picture."""
SCENE_FILE = "scene.png"
"""Picture of the scene that a person is asked about, at its start, from the front."""
END = ""
"""Answer at the end of the input."""

Read = Callable[[str], str]
"""Shows a prompt and returns the line that is typed; raises EOFError at the end of the input."""


def scene_text(things_m: NDArray[np.floating], zones_m: NDArray[np.floating], bench: Workbench) -> str:
    """Scene in words, as the arm sees it.

    Args:
        things_m: Shape (T, 3), places of the things in the arm's base frame.
        zones_m: Shape (Z, 3), likewise of the zones.
        bench: Their colours and shapes.
    """
    things = [f"{thing.colour} {thing.shape}" for thing in bench.things]
    zones = [f"{zone.colour} disc" for zone in bench.zones]
    far = np.linalg.norm(things_m[:, :2], axis=1)
    told = [f"{things[row]} ({100.0 * far[row]:.0f} cm away)" for row in np.argsort(-things_m[:, 1])]
    return f"{', '.join(told)}; behind them {', '.join(zones[row] for row in np.argsort(-zones_m[:, 1]))}"


def choose_instructions(
    task: str,
    bundle: Bundle,
    episodes: int,
    given: Sequence[str],
    folder: Path,
    say: Callable[[str], None],
    read: Read | None = None,
) -> tuple[str, ...]:
    """Instruction of each recorded episode, every one of which says one thing in its scene.

    Args:
        task: Task told in words.
        bundle: The policy, with a vocabulary.
        episodes: Number of episodes.
        given: Sentences to take in turn; the task's own where one says nothing in a scene, and if there are none.
        folder: Gets a picture of each scene, if a person is asked.
        say: Takes lines for people.
        read: Asks a person for each episode, where nothing is given; an empty line takes the task's own.
    """
    spec = bundle.contract.instruction
    assert spec is not None
    asks = read is not None and not given
    robot = BenchRobot(
        robot_spec(bundle.contract.robot),
        task=task,
        seed=stages.EPISODES_SEED,
        pictures_px=PICTURE_PX if asks else 0,
        meshes=asks,
    )
    told: list[str] = []
    try:
        robot.connect()
        for number in range(1, episodes + 1):
            robot.reset()
            own = robot.instruction
            if read is not None and asks:
                told.append(_ask(robot, spec, f"Episode {number} of {episodes}", folder, read, say))
                asks = told[-1] != END
                told[-1] = told[-1] or own
            else:
                text = given[(number - 1) % len(given)] if given else own
                if not robot.ask(text):
                    say(f"  episode {number}: '{text}' does not say one thing in its scene; told instead: {own}")
                    text = own
                told.append(text)
    finally:
        robot.close()
    return tuple(told)


def check_instructions(spec: InstructionSpec | None, instructions: Sequence[str]) -> None:
    """Refuse sentences that the policy could not follow.

    Raises:
        InstructionError: If it takes none, or knows no word of one.
    """
    for text in instructions:
        if spec is None:
            raise InstructionError(f"The policy takes no instructions; '{text[:40]}' is not heard.")
        tokens_of(spec, text)


def _ask(
    robot: BenchRobot, spec: InstructionSpec, title: str, folder: Path, read: Read, say: Callable[[str], None]
) -> str:
    """One sentence that says one thing in the scene; :data:`END` at the end of the input."""
    own, places = robot.instruction, robot.read().extra
    things_m, zones_m = (places[name].reshape(-1, 3) for name in (THINGS_SIGNAL, ZONES_SIGNAL))
    say(f"{title}: {scene_text(things_m, zones_m, WORKBENCHES['tell'])}")
    path = folder / SCENE_FILE
    Image.fromarray(np.moveaxis(robot.read_pictures()[FRONT].pixels, 0, -1)).save(path)
    say(f"Seen from the front, left and right swapped: {path}")
    while True:
        try:
            text = read(f"What shall the arm do? (Enter: {own}) ").strip()
        except EOFError:
            return END
        if not text:
            return own
        try:
            tokens_of(spec, text)
        except InstructionError as error:
            say(str(error))
            continue
        if robot.ask(text):
            return text
        strange = unknown_words(spec, text)
        unknown = f" The policy does not know {', '.join(strange)}." if strange else ""
        say(f"That does not say one thing in this scene.{unknown} For example: {', '.join(spec.examples[:4])}.")

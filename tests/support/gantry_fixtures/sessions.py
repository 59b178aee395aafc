"""A session that runs tick by tick on a simulated robot, with a device whose motion is written down."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.control.safety import Event, SafetyConfig
from gantry_deploy.embodiments.registry import embodiment_of
from gantry_deploy.recording.recorder import Recorder
from gantry_deploy.session.config import SessionCfg
from gantry_deploy.session.run import SessionRun, Views
from gantry_deploy.session.steps import SessionStep
from gantry_deploy.teleop.operator import Axis, OperatorInput, TeleopEvent
from gantry_hardware.backends.registry import make_backend
from gantry_hardware.robots import robot_spec


class ScriptedDevice:
    """A person whose hand follows a script: readings by control step of the session, from 1 on; none otherwise."""

    name = "script"

    def __init__(self) -> None:
        self.script: dict[int, OperatorInput] = {}
        self.ticks = 0
        self.counts = False
        self.released = 0

    def attend(self, request: Callable[[TeleopEvent], str | None], state: Callable[[], str]) -> None:
        self.request, self.state = request, state

    def release(self) -> None:
        self.released += 1

    def connect(self) -> None: ...

    def read(self, now_s: float) -> OperatorInput:
        self.ticks += self.counts
        return self.script.get(self.ticks, OperatorInput(now_s)) if self.counts else OperatorInput(now_s)

    def describe(self) -> list[str]:
        return ["moves as written"]

    def close(self) -> None: ...


class Kept:
    """Keeps steps."""

    def __init__(self) -> None:
        self.steps: list[SessionStep] = []
        self.discarded: list[int] = []

    def take(self, step: SessionStep) -> None:
        self.steps.append(step)

    def discard(self, episode: int) -> None:
        self.discarded.append(episode)

    def attempt(self, episode: int) -> list[SessionStep]:
        """Steps of an attempt."""
        return [step for step in self.steps if step.episode == episode]


class Bench(SessionRun):
    """A session whose ticks are made one by one."""

    def __init__(
        self, name: str, command=None, classifier=None, make_device=None, record: Path | None = None, **cfg: object
    ) -> None:
        bundle = load_bundle(find_bundle(f"pretrained:{name}"))
        contract = bundle.contract
        kind = embodiment_of(contract)
        options = kind.backend_options(contract, kind.simulated_backend)
        robot = make_backend(kind.simulated_backend, robot_spec(contract.robot), **options, seed=3)
        self.device = ScriptedDevice() if make_device is None else make_device(contract)
        self.kept = Kept()
        settings = SessionCfg(**cfg)  # type: ignore[arg-type]
        safety = SafetyConfig()
        options = {"sinks": [self.kept], "command": command, "safety": safety, "classifier": classifier}
        self.recorder = None if record is None else Recorder(record, contract, robot.spec, lossless=True)
        if self.recorder is not None:
            options["views"] = Views(recorder=self.recorder)
        super().__init__(bundle, robot, self.device, settings, **options)
        self.sent: list[np.ndarray] = []

    def start(self) -> None:
        """Stand up, to the moment in which the first attempt has begun."""
        self.controller.tick()
        self.controller.request(Event.STAND)
        while not self.kept.steps:
            self.step()
        self.device.counts = True

    def step(self) -> None:
        """One tick."""
        command = self._before(0.0)
        if command is not None:
            self.controller.set_command(command, self.robot.now_s())
        report = self.controller.tick()
        self._after(report)
        if report.sent is not None:
            self.sent.append(report.sent.pos_rad.copy())
        self.robot.sleep_until(self.robot.now_s() + self.session.parts.contract.dt_s)

    def run_ticks(self, count: int) -> None:
        """Further ticks."""
        for _ in range(count):
            self.step()


def hand(*events: TeleopEvent, engaged: bool = True, **axes: float) -> OperatorInput:
    """A reading."""
    return OperatorInput(0.0, engaged, {Axis(name): value for name, value in axes.items()}, events=events)

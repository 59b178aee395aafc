"""One episode of a bundle in a foreign simulator, through the control loop that drives every car."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.bundle.bundle import Bundle
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Mode, SafetyMachine
from gantry_deploy.errors import ContractError
from gantry_deploy.observations.surroundings import STOP_GO
from gantry_deploy.perception.road import RoadView, Route, needs
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.errors import GantryError
from gantry_sim.driving.external_sims.car import HeldOutCar
from gantry_sim.driving.external_sims.meter import Ride, RideMeter

TOLD = ("route", "objects", "stop_line")
"""Inputs of a policy from foreign simulators; there is never a stop line here."""
BLOCKED_S = 15.0
"""A car that has not moved for so long is blocked."""
SLOWEST_M_S = 3.0
"""A ride that is slower on average runs out of time."""
STAND_MORE_S = 0.5
"""Waited for beyond the time that standing takes, until a car has settled on its suspension."""


@dataclass(frozen=True)
class Scene:
    """One episode that waits to be driven."""

    car: HeldOutCar
    """Standing at the beginning of its route."""
    route: Route
    """The way to go."""
    finish_m: float
    """Place on the route that ``base_link`` is to reach."""
    objects: Callable[[], NDArray[np.float64]]
    """All others now, (K, 7) as in :class:`gantry_deploy.observations.surroundings.Surroundings`."""
    outcome: Callable[[], tuple[str | None, Mapping[str, int]]]
    """End of the episode in the simulator, one of :data:`~gantry_sim.driving.external_sims.meter.ENDS` or None while it
    goes on, and the infractions so far. A car at its finish has finished, whether the simulator says so or not."""
    strict: Callable[[], bool] = lambda: False
    """Whether the newest step broke the simulator's own rule, where that is stricter than ours."""


def refuse_other_senses(contract: PolicyContract, simulator: str) -> None:
    """Refuse a policy that sees what a foreign simulator is not asked for here.

    Raises:
        ContractError: Naming what.
    """
    lacking = [name for name in needs(contract) if name not in TOLD]
    if lacking:
        raise ContractError(f"The policy sees {', '.join(lacking)}; {simulator} tells {', '.join(TOLD)} here.")


class Judge:
    """Follows one ride and says when it is over.

    Args:
        scene: The episode, its car connected and at the moment from which the ride counts.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene, car = scene, scene.car
        self._meter = RideMeter(scene.route, car.car, car.read(), scene.finish_m, car.dt_s)
        self._limit_s = BLOCKED_S + scene.finish_m / SLOWEST_M_S
        self.end: str | None = None
        """How it ended, one of :data:`~gantry_sim.driving.external_sims.meter.ENDS`; None while it goes on."""

    def __call__(self) -> str | None:
        """After a decision; returns :attr:`end`."""
        meter = self._meter
        meter(self._scene.car.read(), self._scene.strict())
        self.end = self._scene.outcome()[0]
        if self.end is None:
            late = meter.duration_s >= self._limit_s
            blocked = meter.still_s >= BLOCKED_S
            self.end = "finished" if meter.arrived else "blocked" if blocked else "late" if late else None
        return self.end

    def ride(self, text: str = "") -> Ride:
        """Result of the ride; ``text`` is a remark on its end."""
        infractions = dict(self._scene.outcome()[1])
        if self.end == "blocked":
            infractions["blocked"] = 1
        return self._meter.ride(self.end or "late", infractions, text)


class _Driver:
    """The control loop around one car."""

    def __init__(self, bundle: Bundle, scene: Scene) -> None:
        self._scene = scene
        self._view = RoadView(bundle.contract)
        self._view.set_route(scene.route)
        self.safety = SafetyMachine(scene.car.spec)
        runner = PolicyRunner(bundle, scene.car.spec)
        self.loop = Controller(scene.car, runner, self.safety, surroundings=self._view)
        self.judge: Judge | None = None

    def look(self, time_s: float) -> None:
        """Tell the policy of the others; called before every tick."""
        now_s = self._scene.car.now_s()
        self._view.set_objects(self._scene.objects(), now_s)
        self._view.set_stop_line(np.inf, STOP_GO, now_s)

    def watch(self, _: object) -> None:
        """After every tick: what the decision before it led to. The first tick is where the ride begins."""
        if self.judge is None:
            self.judge = Judge(self._scene) if self.safety.mode is Mode.POLICY else None
        elif self.safety.mode is not Mode.POLICY:
            self.judge.end = "fault"
        else:
            self.judge()
        if self.judge is None or self.judge.end is not None:
            self.loop.stop()

    def start(self) -> None:
        """Stand, and let the policy loose."""
        self.look(0.0)
        self.loop.tick()
        self.loop.request("stand")
        self.loop.run(self.loop.stand_duration_s + STAND_MORE_S, command_input=self.look)
        self.loop.request("start")


def ride(bundle: Bundle, scene: Scene) -> Ride:
    """Drive one episode to its end.

    Args:
        bundle: For this very car; the contract's checks are the runtime's.
        scene: The episode.

    Raises:
        ContractError: If the policy was not trained for this car.
        SafetyError: If it is not let loose.
        GantryError: If it ends before its first decision.
    """
    scene.car.connect()
    try:
        driver = _Driver(bundle, scene)
        driver.start()
        driver.loop.run(command_input=driver.look, on_tick=driver.watch)
    finally:
        scene.car.close()
    fault = driver.safety.fault
    text = "" if fault is None else fault.text
    if driver.judge is None:
        raise GantryError(f"The policy did not take over: {text or 'the loop ended'}.")
    return driver.judge.ride(text)


def watched(scene: Scene) -> Ride:
    """An episode in which the simulator's own driver has the wheel, and nothing is commanded.

    It may take other lanes than our route does, so that none counts as left; its distance from the route says nothing.
    """
    scene.car.connect()
    try:
        judge = Judge(scene)
        while judge.end is None:
            scene.car.sleep_until(scene.car.now_s() + scene.car.dt_s)
            judge()
    finally:
        scene.car.close()
    return replace(judge.ride(), off_route_share=0.0)

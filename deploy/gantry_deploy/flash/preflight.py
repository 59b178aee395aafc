"""Conditions of a flash, looked at before a single byte is copied; judged on the robot, by the code that runs it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.errors import FlashError
from gantry_deploy.flash.acceptance import signed_by
from gantry_deploy.flash.home import RobotConfig, RobotHome
from gantry_deploy.flash.release import Manifest, read_release, runtime_version
from gantry_deploy.flash.selftest import test_release
from gantry_deploy.flash.status import unsafe_reason
from gantry_deploy.flash.switch import prove_switching
from gantry_hardware.backends.registry import backend_names
from gantry_hardware.errors import GantryError, near_name
from gantry_hardware.robots import robot_spec

MOST_SKEW_S = 120.0
"""Largest difference of the clocks: last days of keys, and the log, go by the robot's."""
SPARE_BYTES = 16 * 2**20
"""Room that is left on the disk beside the release."""
WHEELS_SHARE = 5
"""Room for wheels, as a multiple of their size: themselves, and unpacked."""
SAFE_COMMAND_S = 10.0
"""Longest time that the robot's own command may take to say whether it is safe to switch."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    """For programs, and the first column for people."""
    passed: bool
    """Whether it is right."""
    text: str
    """Result in words, with the remedy."""


@dataclass(frozen=True)
class Request:
    """Wish to flash a release."""

    manifest: Manifest
    """Of the release."""
    contract: str
    """JSON of the policy's contract."""
    bundle_manifest: bytes
    """The bundle's ``manifest.json``."""
    now_s: float
    """Time on the other machine's clock, seconds since 1970."""
    no_return: bool = False
    """Whether to do without a release to return to, and without a service that would."""


def preflight(home: RobotHome, request: Request, now_s: float) -> Iterator[Finding]:
    """Look at everything, also after something is wrong.

    Args:
        home: The robot's folder.
        request: What is to be flashed.
        now_s: Time when the request came, on this machine's clock, seconds since 1970.

    Raises:
        FlashError: If the robot was never set up.
    """
    config = home.config()
    manifest = request.manifest
    yield _look("robot", lambda: _robot(config, request.contract))
    yield _look("signature", lambda: signed_by(home, config, manifest, request.bundle_manifest))
    yield _look("runtime", lambda: _runtime(manifest))
    yield _look("run", lambda: _run(home, config, manifest))
    yield _look("space", lambda: _space(home, manifest))
    yield _look("clock", lambda: _clock(request.now_s - now_s))
    yield _look("switch", lambda: (prove_switching(home), "links can be exchanged in this file system")[1])
    if request.no_return:
        yield Finding("return", True, "not asked for (--no-return)")
    else:
        yield _look("return", lambda: _way_back(home, manifest.release))
    yield _look("safe", lambda: safe_to_switch(home, config))


def safe_to_switch(home: RobotHome, config: RobotConfig) -> str:
    """Words in favour of switching now.

    Raises:
        FlashError: If a policy runs, the robot is held by the runtime, or its own command says no.
    """
    if reason := unsafe_reason(home.status_file):
        raise FlashError(f"{reason}.")
    if not config.safe_command:
        return "no policy is running"
    try:
        done = subprocess.run(
            config.safe_command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SAFE_COMMAND_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FlashError(f"the robot's own 'safe_command' does not answer: {error}.") from error
    said = (done.stdout.strip() or done.stderr.strip())[:200]
    if done.returncode:
        raise FlashError(f"the robot's own 'safe_command' says no ({said or f'exit code {done.returncode}'}).")
    return f"no policy is running, and the robot says it is safe{f': {said}' if said else ''}"


def _look(name: str, work: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, work())
    except (GantryError, OSError) as error:
        return Finding(name, False, str(error))


def _robot(config: RobotConfig, contract_text: str) -> str:
    contract = PolicyContract.from_json(contract_text)
    if contract.robot != config.robot:
        raise FlashError(f"the policy is for '{contract.robot}', and this robot is '{config.robot}'.")
    contract.check_robot(robot_spec(config.robot))
    return f"the contract (version {contract.version}) fits this robot, '{config.robot}'"


def _runtime(manifest: Manifest) -> str:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    wanted = str(manifest.runtime["version"])
    if manifest.runtime["wheels"]:
        for file in manifest.in_part("wheels"):
            if why := wheel_refusal(file.path.partition("/")[2]):
                raise FlashError(f"{file.path} {why}; collect wheels for Python {here} on {platform.machine()}.")
        return f"wheels of {wanted} fit Python {here} on {platform.machine()}"
    found = runtime_version()
    if found.split(".")[:2] != wanted.split(".")[:2]:
        raise FlashError(
            f"the release is for runtime {wanted or '(unknown)'}, installed is {found or '(unknown)'}; "
            "install that version here, or send the wheels along with --wheels."
        )
    return f"the installed runtime, {found}, with Python {here}"


def _run(home: RobotHome, config: RobotConfig, manifest: Manifest) -> str:
    """Whether anything says how the bundle is run; what a release's own file says is judged once it is here."""
    if any(file.path == "config/run.yaml" for file in manifest.files):
        return "as the release's run.yaml says"
    run = config.run
    if not run.backend and not run.command:
        raise FlashError(f"neither the release nor {home.robot_file} says how to run a bundle ('run').")
    if run.backend and run.backend not in backend_names():
        near = near_name(run.backend, backend_names())
        raise FlashError(f"backend '{run.backend}' is not installed here.{f' Is it {near!r}?' if near else ''}")
    return f"on backend '{run.backend}'" if run.backend else f"by {run.command[0]}"


def _space(home: RobotHome, manifest: Manifest) -> str:
    wheels = sum(file.size for file in manifest.in_part("wheels"))
    needed = manifest.size + WHEELS_SHARE * wheels + SPARE_BYTES
    have = sum(size for size in partial_sizes(home, manifest).values())
    free = shutil.disk_usage(home.incoming if home.incoming.is_dir() else home.root).free
    if free < needed - have:
        raise FlashError(f"{needed - have} bytes are needed, and {free} are free; old releases: gantry onboard clean.")
    return f"{manifest.size} bytes to copy{f', {have} of them here' if have else ''}, {free // 2**20} MiB are free"


def _clock(skew_s: float) -> str:
    if abs(skew_s) > MOST_SKEW_S:
        raise FlashError(
            f"the robot's clock is {abs(skew_s):.0f} s {'behind' if skew_s > 0 else 'ahead of'} yours, allowed are "
            f"{MOST_SKEW_S:g}; set it, since keys expire by it."
        )
    return f"the clocks agree to within {max(1.0, abs(skew_s)):.0f} s"


def _way_back(home: RobotHome, release: str) -> str:
    """Proof that a release that fails is returned from: by a service, and to a good release."""
    if not home.service_runs():
        raise FlashError(
            "no service is running that would watch the first run and return; start it (systemctl --user start "
            "gantry-robot, or gantry onboard service)."
        )
    last, current = home.last_good(), home.current()
    if not last:
        if current and current != release:
            raise FlashError(f"{current[:12]} is current and was never good; let it prove itself, or give it up first.")
        return "this is the first release; if it fails, none will run"
    if last == release:
        return "this release was good already"
    folder = home.releases / last
    try:
        read_release(folder)
        test_release(home, last, lambda *_: None)
    except GantryError as error:
        raise FlashError(f"the last good release, {last[:12]}, could not be returned to: {error}") from error
    return f"the last good release, {last[:12]}, is intact and passes its self-test"


def partial_sizes(home: RobotHome, manifest: Manifest) -> dict[str, int]:
    """Bytes of each file that an earlier copy has brought here."""
    folder = home.incoming / manifest.release
    sizes: dict[str, int] = {}
    for file in manifest.files:
        path = folder / file.path
        if path.is_file() and not path.is_symlink():
            sizes[file.path] = min(path.stat().st_size, file.size)
    return sizes


def wheel_refusal(name: str) -> str:
    """Reason for which a wheel does not fit this Python and machine, by its name; empty if it fits."""
    parts = Path(name).stem.split("-")
    if len(parts) < 5:
        return "is no wheel by its name"
    pythons, abis, platforms = (part.split(".") for part in parts[-3:])
    own = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    stable = "abi3" in abis and any(
        item.startswith("cp3") and item[3:].isdecimal() and int(item[3:]) <= sys.version_info[1] for item in pythons
    )
    if own not in pythons and "py3" not in pythons and not stable:
        return f"is for {'.'.join(pythons)}"
    machine = os.uname().machine
    if "any" not in platforms and not any(item.endswith(machine) for item in platforms):
        return f"is for {'.'.join(platforms)}"
    return ""

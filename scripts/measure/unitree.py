"""Measures the Unitree driver on the fake robot over real DDS: walking, bad links, and the time to damping per fault.

    python scripts/measure/unitree.py [--seconds 60] [--repeats 3] [--only walk,link,core,faults,refusals] [--json FILE]

Every run is the command ``gantry run pretrained:go2-walk --backend unitree`` in a process of its own. Times to damping
are on the robot's clock: from the state in which a fault was switched on to the first damping command, or to the
robot's own damping where commands have stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from gantry_deploy.control.safety import SafetyConfig
from gantry_deploy.process.domains import free_domain
from gantry_hardware.backends.state import JointCommand
from gantry_hardware.robots import robot_spec
from gantry_hardware.unitree.idl import CLASSES
from gantry_hardware.unitree.link import Link
from gantry_sim.unitree.fake_process import FakeProcess

GANTRY = str(Path(sys.executable).with_name("gantry"))
TICKS_S = os.sysconf("SC_CLK_TCK")
WALKS_FOR_S = 1.0
"""Time under the policy before a fault."""
QUIET_S = 0.4
"""Time after a fault in which the fake is not asked: to answer holds it up."""
ASK_S = 0.2
"""Time between two questions after that."""
FAULTS = (
    "silence",
    "repeat",
    "freeze",
    "burst ms=300",
    "delay ms=300",
    "replay ms=1500",
    "clock_back ms=3000",
    "crc",
    "upside_down",
    "hot joint=FL_calf_joint c=99",
    "lost joint=RR_thigh_joint",
    "joint joint=FR_hip_joint rad=0.4",
    "battery percent=4",
    "buttons names=L2+B",
)
"""Lines of the fake."""


class Runtime:
    """``gantry run`` on a fake, its lines as they come."""

    def __init__(self, domain: int, seconds: float, *options: str, core: int | None = None) -> None:
        self._json = Path(tempfile.mkdtemp()) / "run.json"
        command = [GANTRY, "run", "pretrained:go2-walk", "--backend", "unitree", "--yes", "--command", "0.5,0,0"]
        command += ["--option", "interface=lo", "--option", f"domain={domain}", "--duration", str(seconds), *options]
        self._process = subprocess.Popen([*command, "--json", str(self._json)], stdout=subprocess.PIPE, text=True)
        if core is not None:
            os.sched_setaffinity(self._process.pid, {core})
        self.pid = self._process.pid
        self.lines: list[str] = []
        self._cpu_s: dict[str, tuple[float, float]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines.append(line.rstrip())
            for mode in ("POLICY", "STAND", "DAMP"):
                if f" s  {mode}" in line and (mode != "STAND" or "POLICY" in self._cpu_s):
                    self._cpu_s[mode] = (self.cpu_s(), time.monotonic())

    def cpu_s(self) -> float:
        """CPU time of all its threads so far."""
        try:
            numbers = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return float("nan")
        return (int(numbers[11]) + int(numbers[12])) / TICKS_S

    def wait_for(self, mode: str, seconds: float = 60.0) -> bool:
        """Whether it says in time that it is in a mode."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s and self._process.poll() is None:
            if any(f" s  {mode}" in line for line in self.lines):
                return True
            time.sleep(0.01)
        return any(f" s  {mode}" in line for line in self.lines)

    def result(self) -> dict[str, Any]:
        """Its result at the end, with its share of a core under the policy."""
        self._process.wait(600)
        self._reader.join(10)
        result = json.loads(self._json.read_text()) if self._json.is_file() else {}
        begin, end = self._cpu_s.get("POLICY"), self._cpu_s.get("STAND") or self._cpu_s.get("DAMP")
        if begin and end and end[1] > begin[1]:
            result["cpu_share"] = (end[0] - begin[0]) / (end[1] - begin[1])
        return result

    def kill(self) -> None:
        """End it at once."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait()


def walk(seconds: float, lines: tuple[str, ...] = (), *options: str, core: int | None = None) -> dict[str, Any]:
    """One run, with faults that are on from the beginning of the policy."""
    fake = FakeProcess("go2")
    if core is not None:
        os.sched_setaffinity(fake.pid, set(range(os.cpu_count() or 1)) - {core})
    runtime = Runtime(fake.domain, seconds, *options, core=core)
    try:
        if runtime.wait_for("POLICY"):
            for line in lines:
                fake.say(f"fault {line}")
        result, report = runtime.result(), fake.report()
    finally:
        runtime.kill()
        fake.close()
    told = result.get("statistics") or {}
    health, timing = told.get("robot") or {}, told.get("timing") or {}
    return {
        "completed": result.get("completed"),
        "fault": told.get("fault"),
        "said": [line for line in runtime.lines if "DAMP" in line],
        "ticks": told.get("ticks"),
        "missed_ticks": told.get("missed_deadlines"),
        "tick_jitter_p99_ms": 1e3 * timing.get("jitter", {}).get("p99_s", float("nan")),
        "busy_p99_ms": 1e3 * timing.get("busy", {}).get("p99_s", float("nan")),
        "command_jitter_p99_ms": 1e3 * health.get("command_jitter_p99_s", float("nan")),
        "command_period_p99_ms": 1e3 * health.get("command_period_p99_s", float("nan")),
        "command_period_max_ms": 1e3 * health.get("command_period_max_s", float("nan")),
        "states": {name: health.get(name) for name in ("states", "lost", "repeated", "out_of_order", "crc_errors")},
        "cpu_share": result.get("cpu_share"),
        "travelled_m": report["travelled_m"],
        "violations": report["violations"],
        "commands": report["commands"],
        "command_gap_ms": report["command_gap_ms"],
        "damped_after_ms": [fault["after_ms"] for fault in report["faults"]],
        "load": os.getloadavg()[0],
    }


def fault_runs(name: str, repeats: int, *options: str) -> dict[str, Any]:
    """Several runs with one fault each while the robot walks."""
    rows = [_fault_run(name, *options) for _ in range(repeats)]
    times = [row["after_ms"] for row in rows if row["after_ms"] is not None]
    return {
        "damped": len(times),
        "of": repeats,
        "median_ms": statistics.median(times) if times else None,
        "max_ms": max(times, default=None),
        "how": sorted({row["how"] for row in rows}),
        "told": sorted({row["told"] for row in rows}),
    }


def _fault_run(name: str, *options: str) -> dict[str, Any]:
    fake = FakeProcess("go2")
    runtime = Runtime(fake.domain, 20.0, *options)
    other = None
    try:
        if not runtime.wait_for("POLICY"):
            return {"after_ms": None, "how": "", "told": f"did not walk: {runtime.lines[-1:]}"}
        time.sleep(WALKS_FOR_S)
        if name == "second writer":
            other, kind = Link("lo", fake.domain), CLASSES["unitree_go"][1]
            other.prepare("rt/lowcmd", kind)
            fake.say("mark second_writer")
            other.writer("rt/lowcmd", kind)
        elif name.startswith("SIG"):
            fake.say(f"mark {name}")
            os.kill(runtime.pid, getattr(signal, name))
        else:
            fake.say(f"fault {name}")
        end_s, fault = time.monotonic() + 10.0, {}
        time.sleep(QUIET_S)
        while time.monotonic() < end_s:
            fault = fake.report()["faults"][-1]
            if fault["how"]:
                break
            time.sleep(ASK_S)
        runtime.wait_for("DAMP", 0.5 if name.startswith("SIG") else 3.0)
        told = next((line.split("DAMP: ")[-1] for line in runtime.lines if "DAMP" in line), "(nothing: it is gone)")
        return {"after_ms": fault["after_ms"], "how": fault["how"], "told": told}
    finally:
        runtime.kill()
        if other is not None:
            other.close()
        fake.close()


def refusals() -> dict[str, str]:
    """Errors of a wrong interface, a wrong domain and a wrong kind of machine; nothing moves."""
    from gantry_hardware.errors import GantryError
    from gantry_hardware.unitree.robot import UnitreeRobot

    found = {}
    for name, options in (
        ("wrong interface", {"interface": "eth99", "domain": 0}),
        ("wrong domain", {"interface": "lo", "domain": free_domain(), "connect_timeout_s": 2.0}),
    ):
        try:
            UnitreeRobot(robot_spec("go2"), **options).connect()
        except GantryError as error:
            found[name] = str(error)
    fake = FakeProcess("g1", "--hang")
    try:
        try:
            UnitreeRobot(robot_spec("g1"), interface="lo", domain=fake.domain, mode_machine=2).connect()
        except GantryError as error:
            found["wrong mode_machine"] = str(error)
        robot = UnitreeRobot(robot_spec("g1"), interface="lo", domain=fake.domain)
        robot.connect()
        robot.take_over()
        home = robot.spec.array("default_rad")
        for i in range(100):
            robot.write(JointCommand.position(robot.spec, home))
            robot.sleep_until(robot.now_s() + 0.02)
            if i == 50:
                fake.say("fault mode_machine value=9")
        fault = robot.fault()
        after_ms = fake.report()["faults"][-1]["after_ms"]
        found["mode_machine changes"] = f"damped after {after_ms} ms: {fault.text if fault else 'no fault'}"
        robot.close()
    finally:
        fake.close()
    return found


def main() -> int:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the walk")
    parser.add_argument("--repeats", type=int, default=3, help="runs per fault")
    usual_s = SafetyConfig().state_timeout_s
    parser.add_argument("--state-timeout", type=float, default=usual_s, help="safety setting state_timeout_s, s")
    parser.add_argument("--missed", type=int, default=5, help="safety setting max_missed_deadlines")
    parser.add_argument("--only", default="walk,link,core,faults,refusals", help="parts, separated by commas")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    args = parser.parse_args()
    parts, found = args.only.split(","), {}

    def note(name: str, value: Any) -> None:
        found[name] = value
        print(f"{name}: {json.dumps(value)}", flush=True)

    patient = ("--safety", f"state_timeout_s={args.state_timeout}", "--safety", f"max_missed_deadlines={args.missed}")
    note("load at the start", os.getloadavg()[0])
    note("state_timeout_s", args.state_timeout)
    if "walk" in parts:
        note("walk", walk(args.seconds, (), *patient))
    bad = ("delay ms=5", "drop share=0.02", "silence for_ms=200")
    if "link" in parts:
        note("link: 5 ms delay and 2 % loss", walk(args.seconds, bad[:2], *patient))
        for allowed_s in (0.1, 0.6):
            name = f"link: and a 200 ms freeze, {1e3 * allowed_s:g} ms allowed"
            note(name, walk(20.0, bad, *patient[2:], "--safety", f"state_timeout_s={allowed_s}"))
    if "core" in parts:
        note("one core", walk(args.seconds, (), *patient, core=(os.cpu_count() or 1) - 1))
    if "faults" in parts:
        for name in ("second writer", "SIGKILL", "SIGSTOP", *FAULTS):
            note(f"fault {name}", fault_runs(name, args.repeats, *patient))
    if "refusals" in parts:
        for name, text in refusals().items():
            note(name, text)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

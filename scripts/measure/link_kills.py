"""Kills of actor and learner at random moments: no acknowledged step may be lost, none may be counted twice.

python scripts/measure/link_kills.py [--kills N] [--seed S] [--folder FOLDER]

Actor and learner are processes of their own on loopback. One of them, drawn anew each time, gets SIGKILL and is
replaced at once, the actor by one with the same spool, the learner by one with the same journal. In the end a fresh
learner reads the journal, and each step that any actor has offered is looked for.
"""

from __future__ import annotations

import argparse
import itertools
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from gantry_deploy.testing.link import actor_command, learner_command, start

RATE_HZ = 100
"""Steps per second that an actor offers."""
WAIT_S = (0.3, 2.5)
"""Shortest and longest time between two kills, s; a process begins to work after about one."""
PATIENCE_S = 60.0
"""Longest time for what must come to an end, s."""
TAIL = 500
"""Steps per actor that may be under way at a kill: more that were offered and are missing count as an error."""


def free_port() -> int:
    """A port on loopback that nothing uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Scene:
    """One actor and one learner in a folder.

    Args:
        folder: Spool, journal and logs are in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, f"127.0.0.1:{free_port()}"
        self.runs, self.learners = 0, 0

    def learner(self) -> subprocess.Popen[bytes]:
        """Start the next learner."""
        self.learners += 1
        log = self.folder / f"taken-{self.learners}.txt"
        command = learner_command(self.address, self.folder / "journal", log, "--publish-s", "0.3")
        return start(command, self.folder / "learner.log")

    def actor(self) -> subprocess.Popen[bytes]:
        """Start the next actor."""
        self.runs += 1
        log = self.folder / f"actor-{self.runs}.txt"
        options = ["--run", str(self.runs), "--rate-hz", str(RATE_HZ), "--image-px", "16", "--close-s", "30"]
        return start(
            actor_command(self.address, "robot-1", self.folder / "spool", log, *options), self.folder / "actor.log"
        )

    def said(self, run: int) -> list[list[str]]:
        """Words of each line of an actor's log."""
        path = self.folder / f"actor-{run}.txt"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def taken(self, learner: int) -> Counter[tuple[int, int]]:
        """Steps that a learner's sink has taken, by run and number, and how often."""
        path = self.folder / f"taken-{learner}.txt"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return Counter((int(run), int(number)) for _, run, number in (line.split() for line in lines))


def end(process: subprocess.Popen[bytes]) -> int:
    """Ask a process to end, and wait for it."""
    process.terminate()
    return process.wait(PATIENCE_S)


def kill_at_random(scene: Scene, kills: int, draw: random.Random) -> list[tuple[float, str]]:
    """Kill and replace; monotonic time and victim of each kill. What is left is sent before this returns."""
    processes = {"learner": scene.learner(), "actor": scene.actor()}
    makers = {"learner": scene.learner, "actor": scene.actor}
    victims: list[tuple[float, str]] = []
    try:
        for _ in range(kills):
            time.sleep(draw.uniform(*WAIT_S))
            victim = draw.choice(sorted(processes))
            victims.append((time.monotonic(), victim))
            processes[victim].kill()
            processes[victim].wait()
            processes[victim] = makers[victim]()
        deadline_s = time.monotonic() + PATIENCE_S
        while not any(word[0] == "acknowledged" for word in scene.said(scene.runs)):
            if time.monotonic() > deadline_s or processes["actor"].poll() is not None:
                raise SystemExit(f"The last actor was not acknowledged anything; see {scene.folder}.")
            time.sleep(0.1)
        end(processes["actor"])
    finally:
        for process in processes.values():
            if process.poll() is None:
                end(process)
    return victims


def replayed(scene: Scene, expected: int) -> Counter[tuple[int, int]]:
    """Steps that a fresh learner gets from the journal."""
    process = scene.learner()
    deadline_s, seen, since_s = time.monotonic() + PATIENCE_S, -1, time.monotonic()
    while time.monotonic() < deadline_s:  # Until all have come and nothing comes any more.
        count = scene.taken(scene.learners).total()
        if count != seen:
            seen, since_s = count, time.monotonic()
        elif count >= expected and time.monotonic() - since_s > 1.0:
            break
        time.sleep(0.2)
    end(process)
    return scene.taken(scene.learners)


def reconnected_s(scene: Scene, victims: list[tuple[float, str]]) -> dict[str, list[float]]:
    """Seconds from a kill to the connection, the start of the new process included, unless another kill came before."""
    logs = [words for run in range(1, scene.runs + 1) for words in scene.said(run)]
    times = sorted(float(words[1]) for words in logs if words[0] == "state" and "connected" in words[2:3])
    found: dict[str, list[float]] = {"learner": [], "actor": []}
    for (time_s, victim), (next_s, _) in itertools.pairwise([*victims, (float("inf"), "")]):
        after_s = next((at_s for at_s in times if at_s > time_s), float("inf"))
        if after_s < next_s:
            found[victim].append(after_s - time_s)
    return found


def count(scene: Scene, kills: Counter[str]) -> dict[str, int]:
    """Numbers of the whole run; ``lost``, ``twice`` and ``unexplained`` must be 0."""
    acknowledged, offered, dropped = {}, {}, 0
    for run in range(1, scene.runs + 1):
        words = scene.said(run)
        acknowledged[run] = max((int(word[1]) for word in words if word[0] == "acknowledged"), default=0)
        offered[run] = {int(word[1]) for word in words if word[0] == "offered"}
        dropped += sum(word[0] == "dropped" for word in words)
    found = replayed(scene, sum(acknowledged.values()))
    lost = sum((run, number) not in found for run, most in acknowledged.items() for number in range(most))
    twice = sum(
        times - 1 for learner in range(1, scene.learners + 1) for times in scene.taken(learner).values() if times > 1
    )
    unexplained, under_way = 0, 0
    for run, numbers in offered.items():
        there = {number for found_run, number in found if found_run == run}
        missing = numbers - there
        under_way += len(missing)
        # Only the last ones may be missing: a hole between steps that came is a loss.
        unexplained += sum(number < max(there, default=-1) for number in missing) + max(0, len(missing) - TAIL)
    spool = scene.folder / "spool"
    return {
        "kills of the learner": kills["learner"],
        "kills of the actor": kills["actor"],
        "offered": sum(map(len, offered.values())),
        "dropped": dropped,
        "acknowledged": sum(acknowledged.values()),
        "taken": len(found),
        "under way to the spool at a kill": under_way,
        "left in the spool": sum(path.is_dir() for path in spool.iterdir()),
        "lost": lost,
        "twice": twice,
        "unexplained": unexplained,
    }


def main() -> int:
    """Run, print every number; 1 if a step was lost or counted twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--folder", type=Path, default=None)
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        scene = Scene(args.folder or Path(temporary))
        begun_s = time.monotonic()
        victims = kill_at_random(scene, args.kills, random.Random(args.seed))
        numbers = count(scene, Counter(victim for _, victim in victims))
        again = reconnected_s(scene, victims)
    for name, value in numbers.items():
        print(f"{name:34s} {value}")
    for victim, times_s in again.items():
        if times_s:
            text = f"median {statistics.median(times_s):.2f}, most {max(times_s):.2f} ({len(times_s)} of them)"
            print(f"{f'connected again after {victim}, s':34s} {text}")
    print(f"{'seconds':34s} {time.monotonic() - begun_s:.0f}")
    is_right = not (numbers["lost"] or numbers["twice"] or numbers["unexplained"] or numbers["left in the spool"])
    print("no acknowledged step was lost, none was counted twice" if is_right else "WRONG")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())

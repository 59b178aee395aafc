"""Flashes whose connection is cut after a random number of bytes, and what is true of the robot after each."""

import os
import random
from collections import Counter

from gantry_deploy.errors import FlashError
from gantry_deploy.flash.preflight import partial_sizes
from gantry_fixtures.flashing import FlashRobot
from gantry_fixtures.proxy import Proxy

PADDING = 150_000
"""Bytes of a configuration file, twice as many once in hexadecimal, that make the copy the longest part."""
UNCUT = 0.15
"""Share of the flashes that are left alone, so that not all cuts fall on the rest of one release."""


def through(robot, proxy):
    """The robot as it is reached through a proxy."""
    port = int(proxy.address.rsplit(":", 1)[1])
    return robot.target(robot.server.client_config(port, name=f"proxy_{port}"))


def padded_release(robot, name, seed):
    """A signed release of some 350 kB that is like no other."""
    folder = robot.folder / "sites" / name
    folder.mkdir(parents=True)
    (folder / "site.yaml").write_text(f"# {os.urandom(PADDING).hex()}\nspeed: 1\n")
    return robot.release(robot.bundle(name, seed=seed), configs=[folder / "site.yaml"], key="lab")


def draw(rng, total):
    """Bytes until a cut: half of them anywhere, a quarter each in the first 6 kB and the last 1.5 kB, of messages."""
    part = rng.random()
    if part < 0.5:
        return rng.randrange(total)
    return rng.randrange(6000) if part < 0.75 else total - rng.randrange(1500)


def cut_flashes(robot: FlashRobot, cuts, seed, say=print):
    """Cut a flash again and again, and end it where no cut comes; returns the counts.

    After every cut the robot has a current release of which every byte is right, and it is the old one or the new.
    """
    rng, counts = random.Random(seed), Counter(cuts=0)
    with Proxy(f"127.0.0.1:{robot.server.port}") as proxy:
        first = robot.flash(padded_release(robot, "first", 0), target=through(robot, proxy), no_return=True)
        old, overhead = robot.check_current(), proxy.passed - first.bytes_sent
        robot.make_good(old)
        number, release = 0, padded_release(robot, "release-0", 1)
        while counts["cuts"] < cuts:
            here = sum(partial_sizes(robot.home, release.manifest).values())
            total, before = release.manifest.size - here + overhead, proxy.passed
            at = 2 * total if rng.random() < UNCUT else draw(rng, total)
            proxy.cut_after(at)
            try:
                outcome = robot.flash(release, target=through(robot, proxy), no_return=True)
                if outcome.state == "waiting":
                    counts["not cut"] += 1
                    overhead = proxy.passed - before - outcome.bytes_sent
                else:
                    counts["cuts"] += 1
                    counts["cut after the switch was asked for"] += 1
            except FlashError as error:
                if not ("cut" in str(error) or "answer" in str(error)):
                    raise
                counts["cuts"] += 1
            proxy.heal()
            robot.wait_for_the_lock()
            current = robot.check_current()
            assert current in (old, release.manifest.release)
            counts["still the old" if current == old else "already the new"] += 1
            if current != old:
                robot.make_good(current)
                number, old = number + 1, current
                release = padded_release(robot, f"release-{number}", number + 1)
                for name in robot.home.state().good[-2:]:  # Cleaning up leaves two to return to.
                    assert (robot.home.releases / name).is_dir()
            say(f"cut after {at} of {total} bytes: {dict(counts)}")
        proxy.cut_after(release.manifest.size // 2)  # It goes on by itself.
        finished = robot.flash(release, target=through(robot, proxy), no_return=True, retries=20)
        counts["attempts of the last"] = finished.attempts
        assert finished.state in ("waiting", "unknown")
        assert robot.check_current() == release.manifest.release
        counts["bytes of the last release that were sent"] = finished.bytes_sent
        counts["bytes of the last release"] = release.manifest.size
    return counts

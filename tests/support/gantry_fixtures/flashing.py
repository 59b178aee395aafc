"""Robots for tests of ``gantry flash``: a folder of releases, its service as a process, reached by a real server."""

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from gantry_deploy.bundle.bundle import load_bundle, sign_bundle, write_bundle
from gantry_deploy.bundle.keys import TrustedKey, TrustedKeys, last_day_after, make_key, private_key_named
from gantry_deploy.bundle.signature import public_key_of
from gantry_deploy.errors import FlashError
from gantry_deploy.flash.home import RobotHome
from gantry_deploy.flash.release import make_release, read_release
from gantry_deploy.flash.sending import Plan, flash
from gantry_deploy.flash.setup import set_up
from gantry_deploy.flash.ssh import Target
from gantry_deploy.testing.legs import contract_for, golden_data, overflowing_model, tiny_bundle, with_actions
from gantry_hardware.robots import robot_spec

GANTRY = str(Path(sys.executable).parent / "gantry")
PATIENCE_S = 120.0
RUN = [
    *("--safety", "max_missed_deadlines=1000", "--safety", "state_timeout_s=1.0"),
    *("--safety", "stand_duration_s=0.1", "--command", "1,0,0"),
]
"""Words of ``gantry run`` that a busy machine bears."""


class FlashRobot:
    """A robot's computer on this one.

    Args:
        folder: For releases and keys.
        server: An ``SshServer``.
        seconds: Time under the policy in each run.
    """

    def __init__(self, folder, server, seconds=0.5):
        self.folder, self.server = Path(folder), server
        self.home = RobotHome(self.folder / "robot")
        self.keys = self.folder / "keys"
        self.lines = []
        set_up(self.home, "go2", "mock", {"realtime": True})
        self.configure(
            run={"backend": "mock", "options": {"realtime": True}, "arguments": ["--duration", str(seconds), *RUN]},
            health={"window_s": 1.0, "silence_s": 20.0, "start_s": 60.0, "missed_share": 1.0, "step_share": 100.0},
        )
        make_key(self.keys, "lab")
        self.trust("lab")

    def configure(self, **fields):
        data = yaml.safe_load(self.home.robot_file.read_text()) | fields
        self.home.robot_file.write_text(yaml.safe_dump(data))

    def key(self, name="lab"):
        return private_key_named(self.keys, name)

    def trust(self, name, role="development", days=30):
        public = public_key_of(self.key(name)).hex()
        TrustedKeys(self.home.keys_file).trust(TrustedKey(name, public, role, last_day_after(days).isoformat()))

    def bundle(self, name, *, signed="lab", robot="go2", seed=0, fails=False):
        """A small policy in a folder; one that fails answers a command of 1 m/s with infinity; golden data lack it."""
        contract = contract_for(robot_spec(robot))
        folder = self.folder / "bundles" / name
        if fails:
            model = overflowing_model(contract)
            golden = with_actions(contract, model, golden_data(contract, seed=seed))
            write_bundle(folder, contract=contract, model_bytes=model, golden=golden)
        else:
            tiny_bundle(folder, contract, hidden=(16,), seed=seed)
        if signed:
            sign_bundle(folder, self.key(signed))
        return folder

    def release(self, bundle, *, configs=(), key=None, wheels=None):
        return make_release(bundle, configs, wheels, None if key is None else self.key(key))

    def target(self, config=None, command=GANTRY):
        return Target("robot", config=config or self.server.client_config(), command=command, home=str(self.home.root))

    def flash(self, release, *, target=None, say=None, **options):
        options = {"retries": 0, "pause_s": 0.2} | options
        return flash(Plan(release, target or self.target(), **options), say or self.lines.append)

    @contextlib.contextmanager
    def service(self):
        """The service as a process; ends as systemd would end it."""
        log = open(self.folder / "service.log", "a")  # noqa: SIM115 - it outlives this line
        command = [GANTRY, "onboard", "service", "--home", str(self.home.root)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.wait(self.home.service_runs, "the service")
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
            log.close()

    def wait(self, condition, what):
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_s, f"{what} does not come"
            time.sleep(0.05)

    def wait_for_rest(self):
        """Wait until the run of a good release has ended."""
        self.wait(lambda: "has ended by itself" in self.service_log(), "the end of the run")

    def install(self, release):
        """Put a release there as a good and current one, as if it had been flashed long ago."""
        from gantry_deploy.bundle.files import MANIFEST
        from gantry_deploy.flash.switch import commit, switch

        folder = self.home.releases / release.manifest.release
        for file in release.manifest.files:
            (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / file.path).write_bytes(b"".join(release.read(file.path, 0)))
        (folder / MANIFEST).write_bytes(release.manifest.text)
        switch(self.home, folder.name, "test")
        commit(self.home, folder.name, "test")
        return folder.name

    def make_good(self, release):
        """As the service does after a good first run."""
        from gantry_deploy.flash.switch import commit

        commit(self.home, release, "test")

    def wait_for_the_lock(self):
        """Wait until no flash has the robot for itself."""
        self.wait(lambda: not self._is_locked(), "the end of the flash on the robot")

    def _is_locked(self):
        from gantry_deploy.flash.home import FLASH_LOCK
        from gantry_deploy.process.folder_lock import FolderLock

        try:
            FolderLock(self.home.root, "The robot", FlashError, name=FLASH_LOCK).release()
        except FlashError:
            return True
        return False

    def check_current(self):
        """The hash of the current release, after every byte of it was compared, and its bundle loaded."""
        current = self.home.current()
        folder = self.home.current_link
        assert read_release(folder).release == current
        load_bundle(folder / "bundle")
        assert current not in self.home.state().failed
        return current

    def service_log(self):
        return (self.folder / "service.log").read_text()

    def whats(self):
        return [line["what"] for line in self.home.log()]


def copy_of(folder, name):
    target = folder.parent / name
    shutil.copytree(folder, target)
    return target

"""The robot's side of a flash: preflight, copy, verification, self-test, switch, and news of the first run.

Whatever ends it, at any byte: the current release stays what it was until the last step, which is one rename.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.files import MANIFEST
from gantry_deploy.errors import FlashError
from gantry_deploy.flash.acceptance import signed_by
from gantry_deploy.flash.channel import PROTOCOL, Channel, CutError
from gantry_deploy.flash.home import FLASH_LOCK, RobotConfig, RobotHome, utc_now
from gantry_deploy.flash.preflight import Request, partial_sizes, preflight, safe_to_switch
from gantry_deploy.flash.release import Manifest, file_trouble, parse_manifest, read_release, remove_folder
from gantry_deploy.flash.selftest import install_runtime, test_release
from gantry_deploy.flash.switch import clean, switch
from gantry_deploy.process.folder_lock import FolderLock, read_holder
from gantry_hardware.errors import GantryError
from gantry_hardware.files.json_file import parse_json_object, read_json_object
from gantry_hardware.files.text import printable
from gantry_hardware.files.whole_files import folder_reaches_disk, reach_disk, write_whole

PATIENCE_S = 60.0
"""A flash from which nothing has come for so long is over, and lets others at the robot."""
FOLLOW_S = 0.2
"""Period at which the first run is looked at."""


def receive(home: RobotHome, channel: Channel) -> int:
    """Serve one flash.

    Args:
        home: The robot's folder.
        channel: To the other side.

    Returns:
        0 if it was done, 2 if it was refused or cut.
    """
    by, manifest = "unknown", None
    try:
        message = channel.receive("flash")
        if message.get("protocol") != PROTOCOL:
            raise FlashError(f"This robot speaks version {PROTOCOL} of the protocol, you {message.get('protocol')!a}.")
        by = printable(str(message.get("by", by)), 120)
        manifest = parse_manifest(str(message["manifest"]).encode())
        request = Request(
            manifest,
            str(message["contract"]),
            str(message["bundle_manifest"]).encode(),
            float(message["now_s"]),
            message.get("no_return") is True,
        )
        home.config()
        lock = _lock(home, channel, by, str(message.get("id", "")), manifest.release)
        if lock is None:
            return 2
        try:
            switched = _Flash(home, channel, request, by).run(dry=message.get("dry_run") is True)
        finally:
            lock.release()
        if switched:
            follow(home, manifest.release, channel.send)  # For as long as the connection lasts.
        return 0
    except CutError as error:
        home.note("cut", by, "" if manifest is None else manifest.release, why=str(error))
        return 2
    except (GantryError, OSError, KeyError, ValueError) as error:
        text = f"{error.strerror}: {error.filename or home.root}." if isinstance(error, OSError) else str(error)
        home.note("refused", by, "" if manifest is None else manifest.release, why=text)
        _say(channel, "refused", text=text)
        return 2


def _lock(home: RobotHome, channel: Channel, by: str, flash_id: str, release: str) -> FolderLock | None:
    holder = {"by": by, "id": flash_id, "since": utc_now().isoformat(timespec="seconds"), "release": release[:12]}
    try:
        return FolderLock(home.root, "The robot", FlashError, name=FLASH_LOCK, holder=json.dumps(holder))
    except FlashError:
        try:
            found = parse_json_object(read_holder(home.root, FLASH_LOCK), "the lock")
            text = f"{found['by']} has been flashing {found['release']} since {found['since']}; try again later."
        except (GantryError, KeyError):
            found, text = {}, "Another person is flashing this robot; try again later."
        home.note("refused", by, release, why=text)
        _say(channel, "busy", text=text, id=str(found.get("id", "")))
        return None


class _Flash:
    """One flash that has the robot for itself."""

    def __init__(self, home: RobotHome, channel: Channel, request: Request, by: str) -> None:
        self.home, self.channel, self.request, self.by = home, channel, request, by
        self.config: RobotConfig = home.config()
        self.manifest: Manifest = request.manifest
        self.release = request.manifest.release

    def run(self, dry: bool) -> bool:
        """Do all of it; whether the robot was switched.

        Raises:
            GantryError: If it is refused.
        """
        passed = True
        for finding in preflight(self.home, self.request, utc_now().timestamp()):
            self.channel.send("finding", **asdict(finding))
            passed = passed and finding.passed
        self.channel.send("verdict", passed=passed)
        if not passed or dry:
            if not dry:
                self.home.note("refused", self.by, self.release, why="preflight")
            return False
        if self.home.current() == self.release and self.release in self.home.state().good:
            self.channel.send("done", state="good", text=f"{self.release[:12]} is the current release already")
            return False
        self._copy()
        self._try_out()
        self.channel.send("ready")
        self.channel.receive("switch")
        safe_to_switch(self.home, self.config)  # Much can have happened since the preflight.
        switch(self.home, self.release, self.by)
        clean(self.home, self.config)
        _say(self.channel, "switched", release=self.release)
        return True

    def _copy(self) -> None:
        final = self.home.releases / self.release
        if final.is_dir():
            try:
                read_release(final)
                self.channel.send("have", sizes={file.path: file.size for file in self.manifest.files})
                return
            except FlashError:
                if self.release in (self.home.current(), self.home.last_good()):
                    raise
                remove_folder(final)
        for other in self.home.incoming.iterdir() if self.home.incoming.is_dir() else []:
            if other.name != self.release:
                shutil.rmtree(other, ignore_errors=True)
        folder = self.home.incoming / self.release
        sizes = partial_sizes(self.home, self.manifest)
        self.channel.send("have", sizes=sizes)
        for file in self.manifest.files:
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            self._take(path, sizes.get(file.path, 0), file.size)
        broken = [file for file in self.manifest.files if file_trouble(folder, file)]
        if broken:
            for file in broken:
                (folder / file.path).unlink(missing_ok=True)
            names = ", ".join(file.path for file in broken[:3])
            raise FlashError(f"{names} did not arrive as sent, and was removed; what arrived stays. Flash again.")
        write_whole(folder / MANIFEST, self.manifest.text)
        for part in {path.parent for path in folder.rglob("*")} | {folder}:
            folder_reaches_disk(part)
        self.home.releases.mkdir(exist_ok=True)
        os.rename(folder, final)
        folder_reaches_disk(self.home.releases)
        self.channel.send("stage", name="copy", passed=True, text=f"{len(self.manifest.files)} files, hashes verified")

    def _take(self, path: Any, have: int, size: int) -> None:
        """Append what is missing of a file; what came stays on the disk, whatever happens in between."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            os.ftruncate(file.fileno(), have)
            file.seek(have)
            while have < size:
                data = self.channel.read(size - have)
                try:
                    while data:
                        written = file.write(data)
                        have, data = have + written, data[written:]
                except OSError as error:
                    error.filename = str(path)
                    raise
            reach_disk(file)

    def _try_out(self) -> None:
        """Verify once more where it will run, judge the signature, and test; what fails is removed."""

        def say(name: str, passed: bool, text: str) -> None:
            self.channel.send("stage", name=name, passed=passed, text=text)

        folder = self.home.releases / self.release
        try:
            read_release(folder)
            bundle = load_bundle(folder / "bundle")
            if bundle.contract.to_json() != self.request.contract:
                raise FlashError("The contract in the bundle is another one than the one that was asked about.")
            bundle_manifest = (folder / "bundle" / MANIFEST).read_bytes()
            say("signature", True, signed_by(self.home, self.config, self.manifest, bundle_manifest))
            install_runtime(self.home, self.release, say)
            test_release(self.home, self.release, say)
        except CutError:
            raise  # A whole release that is not switched to does no harm.
        except (GantryError, OSError):
            if self.release not in (self.home.current(), *self.home.state().good):
                remove_folder(folder)
            raise


def follow(home: RobotHome, release: str, send: Callable[..., None]) -> None:
    """Tell what becomes of the trial of a release, until it is over.

    Raises:
        CutError: If the connection is gone.
    """
    if not home.service_runs():
        send("done", state="waiting", text="no service is running; the first run is watched when one starts it")
        return
    told = ""
    while True:
        state = home.state()
        if release in state.failed:
            send("done", state="returned", text=state.note)
            return
        if state.trial is None or state.trial.release != release:
            send("done", state="good" if release in state.good else "returned", text=state.note)
            return
        if not home.service_runs():
            send("done", state="waiting", text="the service has ended; the first run is watched when it starts again")
            return
        if state.note != told:
            told = state.note
            send("health", text=told)
        time.sleep(FOLLOW_S)


def _say(channel: Channel, kind: str, **fields: Any) -> None:
    """Send if the connection is still there."""
    try:
        channel.send(kind, **fields)
    except CutError:
        return


def release_rows(home: RobotHome) -> list[dict[str, Any]]:
    """Every release on the robot: hash, name, robot, state, and whether it is current; oldest first."""
    state, current = home.state(), home.current()
    rows = []
    folders = [path for path in home.releases.iterdir() if path.is_dir()] if home.releases.is_dir() else []
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime):
        name = folder.name
        try:
            data = read_json_object(folder / MANIFEST, error=FlashError)
        except (OSError, FlashError):
            data = {}
        on_trial = state.trial is not None and state.trial.release == name
        what = "on trial" if on_trial else "failed" if name in state.failed else "good" if name in state.good else "new"
        rows.append(
            {
                "release": name,
                "name": str(data.get("name", "")),
                "robot": str(data.get("robot", "")),
                "runtime": (data.get("runtime") or {}).get("version", ""),
                "signed": data.get("signature") is not None,
                "state": what,
                "current": name == current,
                "last_good": name == home.last_good(),
                "why": state.failed.get(name, ""),
            }
        )
    return rows

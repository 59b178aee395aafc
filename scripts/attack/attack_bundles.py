"""Mutated bundles: bytes, fields, texts, networks, archives, folders, most of them with repaired hashes.

An accepted mutant must be harmless: what it commands on a mock robot is finite, within the joints' limits and without a
jump across a joint's range; its contract reads the same for every JSON reader; and what ``gantry inspect`` prints of it
holds no control characters. A mutant whose hashes were not repaired must be refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from cases import WrongError, message_outcome
from network_changes import (
    branch,
    foreign,
    half,
    huge,
    inputs,
    loop,
    outside,
    pick,
    random_answer,
    renamed,
    tiled,
    twin_metadata,
    weights,
)

from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_deploy.cli.main import main as gantry
from gantry_deploy.contract.policy_contract import METADATA_KEY
from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import Event, Mode, SafetyConfig, SafetyMachine
from gantry_deploy.policy.runner import PolicyRunner
from gantry_hardware.backends.mock import MockRobot
from gantry_hardware.robots import robot_spec

NAMES = ("go2-walk", "go2-walk", "yam-pick-place", "drive-race", "ame2-go2-student")
"""Bundles that are mutated; the first one can be run on the mock robot, and so comes twice."""
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 1e-9, 1e-300, 1e9, 1e308, -1e308, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.5, 3.7,
    float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, True, False, "", "x", "\x1b[2J\x1b]0;pwn\x07", "\ud800", "a" * 100_000, "../../etc/passwd", "a\nb", "\x00",
    [], {}, [[]], [1], {"a": 1}, [0.0] * 1000, "1", "NaN", "\u202egnp.exe", "command/body/velocitx",
)  # fmt: skip


class Attack:
    """Mutations of the bundles that come along."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.sources = [find_bundle(f"pretrained:{name}") for name in NAMES]

    def case(self, number: int, rng: np.random.Generator, folder: Path) -> tuple[str, Callable[[], str]]:
        """One mutant, and what opens and runs it."""
        source = self.sources[int(rng.integers(len(self.sources)))]
        target = folder / "bundle"
        shutil.copytree(source, target)
        kinds = (flip_sealed, flip, field, field, field, text, network, archive, archive, place)
        kind = kinds[int(rng.integers(len(kinds)))]
        path, what, forbidden = kind(target, rng)
        return f"{source.name} {kind.__name__}: {what}", lambda: attempt(path, forbidden)


def attempt(path: Path, forbidden: bool) -> str:
    """Open a mutant as the runtime does, print it, run it."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = gantry(["inspect", str(path)])
    outcome, said = message_outcome(printed.getvalue()[:1500] + " ")
    if outcome == "ugly" or "Traceback" in printed.getvalue():
        raise RuntimeError(f"inspect, exit code {code}: {said}")
    bundle = load_bundle(path)
    if path.is_dir():
        require_one_reading((path / "contract.json").read_text())
    spec = robot_spec(bundle.contract.robot)
    runner = PolicyRunner(bundle, spec)
    if forbidden:
        raise WrongError("accepted, and must be refused")
    contract = bundle.contract
    if not (5.0 if contract.embodiment == "car" else 10.0) <= contract.rate_hz <= 1000.0:
        raise WrongError(f"a rate of {contract.rate_hz} Hz was accepted")
    if contract.embodiment == "legs" and contract.map_window is None:
        run(runner)
        return "right"
    return "right, not run"


def require_one_reading(text: str) -> None:
    """Refuse a JSON text that readers understand differently: a key that stands there twice."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in items}) != len(items):
            raise WrongError(f"a contract with a key twice was accepted: {sorted(key for key, _ in items)}")
        return dict(items)

    json.loads(text, object_pairs_hook=pairs)


def run(runner: PolicyRunner) -> None:
    """Two seconds under the policy on the mock robot; judge every command."""
    spec = runner.spec
    robot = MockRobot(spec)
    robot.connect()
    config = SafetyConfig(stand_duration_s=0.2)
    controller = Controller(robot, runner, SafetyMachine(spec, config))
    controller.tick()
    controller.request(Event.STAND)
    controller.run(0.6)
    controller.request(Event.START)
    lower, upper = spec.array("lower_rad"), spec.array("upper_rad")
    before = None

    def judge(report: Any) -> None:
        nonlocal before
        sent = report.sent
        if sent is None:
            return
        if not sent.is_finite():
            raise WrongError("a command that is not finite was sent")
        if (sent.pos_rad < lower - 1e-6).any() or (sent.pos_rad > upper + 1e-6).any():
            raise WrongError("a target beyond the joints' limits was sent")
        if (sent.stiffness_nm_rad < 0).any() or (sent.damping_nm_s_rad < 0).any():
            raise WrongError("a negative gain was sent")
        if before is not None and report.mode is Mode.POLICY:
            step = np.abs(sent.pos_rad - before) / (upper - lower)
            if step.max() > 0.9:
                raise WrongError(f"a target jumped across {100 * step.max():.0f} % of a joint's range in one step")
        before = sent.pos_rad if report.mode is Mode.POLICY else None

    controller.run(2.0, command_input=lambda time_s: np.array([0.5, 0.0, 0.2]), on_tick=judge)


def seal(folder: Path) -> None:
    """Repair every hash, as an attacker or a tool with a fault would."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    files.pop("manifest.json", None)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "files": hashes}))


def flip_sealed(folder: Path, rng: np.random.Generator) -> tuple[Path, str, bool]:
    """Change one bit and leave the hash."""
    path = pick(rng, sorted(folder.iterdir()))
    data = bytearray(path.read_bytes())
    place, bit = int(rng.integers(len(data))), int(rng.integers(8))
    before = json.loads(data) if path.name == "manifest.json" else None
    data[place] ^= 1 << bit
    path.write_bytes(data)
    same = False
    if before is not None:
        with contextlib.suppress(ValueError):
            same = json.loads(data) == before
    return folder, f"bit {bit} of byte {place} of {path.name}", not same


def flip(folder: Path, rng: np.random.Generator) -> tuple[Path, str, bool]:
    """Change some bytes, or cut, and repair the hash."""
    path = pick(rng, [path for path in sorted(folder.iterdir()) if path.name != "manifest.json"])
    data = bytearray(path.read_bytes())
    if rng.random() < 0.2:
        data = data[: int(rng.integers(len(data)))]
        what = f"{path.name} cut to {len(data)} bytes"
    else:
        places = rng.integers(len(data), size=int(rng.integers(1, 5)))
        for at in places:
            data[at] = int(rng.integers(256))
        what = f"bytes {places.tolist()} of {path.name}"
    path.write_bytes(data)
    seal(folder)
    return folder, what, False


def field(folder: Path, rng: np.random.Generator) -> tuple[Path, str, bool]:
    """Replace, remove or add a value somewhere in the contract, in the file and in the network alike."""
    contract = json.loads((folder / "contract.json").read_text())
    path, what = [], ""
    node: Any = contract
    while isinstance(node, dict | list) and node and (not path or rng.random() < 0.9):
        key = pick(rng, list(node) if isinstance(node, dict) else list(range(len(node))))
        path.append(key)
        parent, node = node, node[key]
    kind = rng.random()
    if kind < 0.08 and isinstance(parent, dict):
        del parent[key]
        what = "removed"
    elif kind < 0.12 and isinstance(parent, dict):
        parent["unheard_of"] = 1
        what = "unheard_of added"
    elif kind < 0.18 and isinstance(node, int | float) and not isinstance(node, bool):
        parent[key] = -node
        what = "sign changed"
    elif kind < 0.28 and isinstance(node, int | float) and not isinstance(node, bool):
        factor = float(10.0 ** rng.integers(-6, 7))
        parent[key] = node * factor
        what = f"times {factor:g}"
    else:
        value = pick(rng, NUMBERS if rng.random() < 0.6 else OTHERS)
        parent[key] = value
        what = f"= {ascii(value)[:60]}"
    write_contract(folder, json.dumps(contract))
    return folder, f"{'.'.join(map(str, path))} {what}", False


def write_contract(folder: Path, text: str) -> None:
    """Write the contract into the file and the network's metadata, and repair the hashes."""
    data = text.encode("utf-8", "surrogatepass")
    (folder / "contract.json").write_bytes(data)
    model = onnx.load_model_from_string((folder / "policy.onnx").read_bytes())
    for entry in model.metadata_props:
        if entry.key == METADATA_KEY:
            with contextlib.suppress(UnicodeEncodeError):
                entry.value = text
    (folder / "policy.onnx").write_bytes(model.SerializeToString())
    seal(folder)


def text(folder: Path, rng: np.random.Generator) -> tuple[Path, str, bool]:
    """Texts that readers stumble over: nesting, sizes, encodings, keys that come twice, escapes."""
    name = pick(rng, ("contract.json", "card.json", "manifest.json"))
    path = folder / name
    before = path.read_text()
    body = before.rstrip().rstrip("}")
    forbidden = True
    kind = int(rng.integers(9))
    if kind == 0:
        key = pick(rng, list(json.loads(before)))
        data = f"{body}, {json.dumps(key)}: {json.dumps(pick(rng, (1, 'x', [79.0] * 12)))}}}".encode()
        what = f"key {key} twice"
    elif kind == 1:
        depth = int(rng.integers(2000, 200_000))
        data, what = f'{body}, "deep": {"[" * depth}{"]" * depth}}}'.encode(), f"{depth} levels"
    elif kind == 2:
        data, what = f'{body}, "more": "{"a" * 20_000_000}"}}'.encode(), "20 MB of text"
    elif kind == 3:
        data, what = b"[" * 100_000, "100000 brackets"
    elif kind == 4:
        data, what = before.encode("utf-16"), "UTF-16"
    elif kind == 5:
        data, what = f'{body}, "more": {"9" * 100_000}}}'.encode(), "a number of 100000 digits"
    elif kind == 6:
        data, what = before.encode() + b"\x00" * int(rng.integers(1, 1000)), "zeros behind"
    elif kind == 7:
        data, what = b"\xef\xbb\xbf" + before.encode(), "byte order mark"
        forbidden = False
    else:
        data, what = f'{body}, "\\ud800\\u001b[2J": "\\ud800"}}'.encode(), "a lone surrogate"
    if name == "contract.json":
        with contextlib.suppress(UnicodeDecodeError):
            write_contract(folder, data.decode())
    path.write_bytes(data)
    if name != "manifest.json":
        seal(folder)
    # A card is for people; it may hold keys that Gantry does not know, but every one once.
    forbidden = (
        forbidden and not (name == "card.json" and kind in (5, 8)) and not (name == "manifest.json" and kind == 8)
    )
    return folder, f"{name}: {what}", forbidden


def network(folder: Path, rng: np.random.Generator) -> tuple[Path, str, bool]:
    """Networks that do not end, take all memory, are not finite, or are not what the contract says."""
    kinds = (loop, branch, huge, weights, half, outside, foreign, inputs, random_answer, renamed, twin_metadata, tiled)
    name = "policy.onnx"
    if (folder / "mapper.onnx").is_file() and rng.random() < 0.5:
        name, kinds = "mapper.onnx", (loop, branch, huge, foreign, random_answer)
    model = onnx.load_model_from_string((folder / name).read_bytes())
    kind = pick(rng, kinds)
    forbidden = kind(model, model.graph, rng)
    (folder / name).write_bytes(model.SerializeToString())
    seal(folder)
    return folder, f"{kind.__name__} of {name}", forbidden


def archive(folder: Path, rng: np.random.Generator) -> tuple[Path, str, bool]:
    """Zips whose contents or sizes lie."""
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    path = folder.parent / "bundle.zip"
    kinds = (
        "bomb", "lie", "twice", "path", "link", "cut", "flip", "nested", "many", "encrypted", "npz", "good", "slash",
    )  # fmt: skip
    kind = pick(rng, kinds)
    forbidden = kind not in ("good", "nested", "cut", "flip")
    if kind == "npz":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as inner:
            inner.writestr("observation.npy", bytes(600 * 2**20))
        data = buffer.getvalue()
        files["golden.npz"] = patch_sizes(data, 1000) if rng.random() < 0.7 else data
        manifest = json.loads(files["manifest.json"])
        manifest["files"]["golden.npz"] = hashlib.sha256(files["golden.npz"]).hexdigest()
        files["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            if kind == "nested":
                name = f"go2walk/{name}"
            if kind in ("bomb", "lie") and name == "manifest.json":
                data = bytes(1500 * 2**20)
            out.writestr(name, data)
        if kind == "twice":
            with warnings.catch_warnings(action="ignore"):
                out.writestr("card.json", b"{}")
        if kind == "path":
            out.writestr(pick(rng, ("../x", "/etc/x", "a/../../x", "c:\\x", "a" * 300, "x\x1b[2J", "x\ny")), b"x")
        if kind == "slash":
            out.writestr("folder/", b"")
            out.writestr("folder/more", b"x")
        if kind == "link":
            info = zipfile.ZipInfo("link")
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            out.writestr(info, "/etc/passwd")
        if kind == "many":
            for i in range(2000):
                out.writestr(f"f{i}", b"")
    path.write_bytes(change_zip(path.read_bytes(), kind, rng))
    return path, kind, forbidden


def change_zip(data: bytes, kind: str, rng: np.random.Generator) -> bytes:
    """Change the bytes of a zip as its kind of attack wants it."""
    if kind == "lie":
        data = patch_sizes(data, 1000)
    elif kind == "cut":
        data = data[: int(rng.integers(len(data)))]
    elif kind == "flip":
        at = int(rng.integers(len(data)))
        data = data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]
    elif kind == "encrypted":
        data = data.replace(b"PK\x01\x02" + data[data.index(b"PK\x01\x02") + 4 :][:4], b"PK\x01\x02\x14\x00\x14\x00", 1)
        at = data.index(b"PK\x01\x02") + 8
        data = data[:at] + struct.pack("<H", 1) + data[at + 2 :]
    return data


def patch_sizes(data: bytes, size: int) -> bytes:
    """Let the first huge member of a zip claim to be small, in both headers."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        info = max(archive.infolist(), key=lambda item: item.file_size)
        at = info.header_offset + 22
        data = data[:at] + struct.pack("<I", size) + data[at + 4 :]
        name = info.filename.encode()
    central = data.index(b"PK\x01\x02")
    while True:
        length = struct.unpack("<H", data[central + 28 : central + 30])[0]
        if data[central + 46 : central + 46 + length] == name:
            return data[: central + 24] + struct.pack("<I", size) + data[central + 28 :]
        central = data.index(b"PK\x01\x02", central + 4)


def place(folder: Path, rng: np.random.Generator) -> tuple[Path, str, bool]:
    """Folders with what no bundle holds, and paths that lead nowhere."""
    kind = int(rng.integers(10))
    if kind == 0:
        (folder / "link").symlink_to("/etc/passwd")
        return folder, "a link", True
    if kind == 1:
        os.mkfifo(folder / "card2.json")
        return folder, "a pipe", True
    if kind == 2:
        (folder / "sub").mkdir()
        return folder, "a folder inside", True
    if kind == 3:
        victim = pick(rng, ("policy.onnx", "contract.json", "golden.npz", "manifest.json"))
        (folder / victim).unlink()
        return folder, f"{victim} missing", True
    if kind == 4:
        (folder / "more.bin").write_bytes(b"x")
        return folder, "one file more", True
    if kind == 5:
        return folder / ("a" * int(rng.integers(256, 5000))), "a path that is too long", True
    if kind == 6:
        return Path(f"{folder}\n\x1b[2Jx"), "a path with a line break", True
    if kind == 7:
        (folder / "policy.onnx").unlink()
        (folder / "policy.onnx").symlink_to("/dev/zero")
        return folder, "an endless device", True
    if kind == 8:
        loop_path = folder.parent / "around"
        loop_path.symlink_to(loop_path)
        return loop_path, "a link to itself", True
    return Path("/dev/zero"), "a device", True

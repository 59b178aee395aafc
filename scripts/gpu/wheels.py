"""Wheels for a machine with a GPU and without a network, cut into loads that are small enough to travel.

python scripts/gpu/wheels.py get [--have FILE] [--output build/gpu-wheels] [--python 3.12] [--limit-mib 64]
python scripts/gpu/wheels.py install FOLDER [--venv build/gpu-venv]

``get`` runs where there is a network: it downloads what simulation and training need beyond what the other machine has
(``pip list --format=freeze`` of it as FILE; torch and numpy without one) in the versions of ``constraints.txt``, tells
the size of each wheel, and writes FOLDER/load-0, load-1 and so on, each of which travels beside the repository within
the limit. A wheel that is larger than a load is cut into pieces. ``install`` runs on the other machine, with plain
Python and pip, once all loads lie there: it joins and compares them, makes a virtual environment over the packages of
that machine's Python, and installs the wheels and Gantry into it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Collection
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ("mjlab", "mujoco-warp", "rsl-rl-lib", "tensordict", "mjbatch", "onnxscript", "scipy", "pillow")
"""Packages that simulation and training ask for beside Gantry's own base."""
BUILD = ("hatchling", "editables", "packaging", "pathspec", "pluggy", "trove-classifiers")
"""Packages that install Gantry itself."""
HAVE = ("torch", "torchvision", "numpy")
"""Packages that the machine is taken to have."""
LEFT_OUT = ("torchrunx",)
"""Requirements that nothing here imports: mjlab's launcher of several processes."""
STRIPPED = {"imageio_ffmpeg": "imageio_ffmpeg/binaries/ffmpeg", "wandb": "wandb/bin/"}
"""Wheels that mjlab imports for their names alone, and programs for videos and logs that are taken out of them."""
FFMPEG = "import os; os.environ.setdefault('IMAGEIO_FFMPEG_EXE', 'ffmpeg')"
"""Line of Python that names another such program, which the machine may have."""
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64")
"""Tags of wheels."""
LIST = "wheels.json"
"""File in each load: for each wheel of all loads its SHA-256 and the names of its pieces in their order."""
MIB = 2**20


def needed(have: Collection[str], python: str) -> list[str]:
    """Packages to bring: requirements of requirements, as this environment knows them, each with its version.

    Args:
        have: Names, in small letters with hyphens, of packages that the machine has.
        python: Its version of Python.
    """
    from packaging.markers import Environment, default_environment
    from packaging.requirements import Requirement

    there: Environment = default_environment()
    there |= {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": "x86_64"}
    there |= {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    left = [
        *ROOTS,
        *(Requirement(line).name for line in metadata.requires("gantry-rl") or [] if "extra ==" not in line),
    ]
    found: set[str] = set()
    while left:
        name = _plain(left.pop())
        if name in found or name in have or name in LEFT_OUT:
            continue
        found.add(name)
        for line in metadata.requires(name) or []:
            item = Requirement(line)
            if item.marker is None or item.marker.evaluate({**there, "extra": ""}):
                left.append(item.name)
    text = (ROOT / "constraints.txt").read_text()
    pins = {_plain(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE)}
    names = sorted(found | {name for name in BUILD if name not in have})
    return [f"{name}=={pins[name]}" if name in pins else name for name in names]


def strip(wheel: Path, beginning: str) -> None:
    """Take files out of a wheel, and out of its list.

    Args:
        wheel: The file, which is replaced.
        beginning: Of their names.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            data = old.read(item)
            if item.filename.endswith(".dist-info/RECORD"):
                data = b"".join(line for line in data.splitlines(True) if not line.startswith(beginning.encode()))
            if not item.filename.startswith(beginning):
                new.writestr(item, data)
    wheel.write_bytes(content.getvalue())


def cut(wheels: Path, folder: Path, load_mib: float) -> list[Path]:
    """Distribute wheels over loads, the largest first, each into the first load that has room.

    Args:
        wheels: Folder of whole wheels.
        folder: For the loads; those that lie there are replaced.
        load_mib: Size of a load at most, MiB.

    Returns:
        The loads.
    """
    for old in folder.glob("load-*"):
        shutil.rmtree(old)
    room, size = int(load_mib * MIB), int((load_mib - 1.0) * MIB)
    loads: list[list[tuple[str, bytes]]] = []
    listed: dict[str, dict[str, object]] = {}
    for path in sorted(wheels.glob("*.whl"), key=lambda path: -path.stat().st_size):
        content = path.read_bytes()
        pieces = [content[begin : begin + size] for begin in range(0, len(content), size)]
        names = [path.name] if len(pieces) == 1 else [f"{path.name}.{number:03d}" for number in range(len(pieces))]
        listed[path.name] = {"sha256": hashlib.sha256(content).hexdigest(), "pieces": names}
        for name, piece in zip(names, pieces, strict=True):
            load = next((load for load in loads if sum(len(held) for _, held in load) + len(piece) <= size), None)
            if load is None:
                loads.append(load := [])
            load.append((name, piece))
    text = json.dumps(listed, indent=1) + "\n"
    assert len(text) < room - size
    found = []
    for number, load in enumerate(loads):
        found.append(folder / f"load-{number}")
        found[-1].mkdir(parents=True)
        (found[-1] / LIST).write_text(text)
        for name, piece in load:
            (found[-1] / name).write_bytes(piece)
    return found


def joined(folder: Path) -> list[Path]:
    """Make the whole wheels of all loads again, in FOLDER/wheels.

    Raises:
        ValueError: If a load is missing, or a wheel is not the one that was cut.
    """
    lists = sorted(folder.glob(f"load-*/{LIST}"))
    if not lists:
        raise ValueError(f"There is no load in '{folder}'; expected load-0 and others with {LIST}.")
    (folder / "wheels").mkdir(exist_ok=True)
    found = []
    for name, item in json.loads(lists[0].read_text()).items():
        places = {path.name: path for path in folder.glob("load-*/*")}
        if missing := [piece for piece in item["pieces"] if piece not in places]:
            raise ValueError(f"There is no {', '.join(missing)} in the loads of '{folder}'; bring the others too.")
        content = b"".join(places[piece].read_bytes() for piece in item["pieces"])
        if hashlib.sha256(content).hexdigest() != item["sha256"]:
            raise ValueError(f"{name} is not what was cut: its hash differs from {LIST}.")
        found.append(folder / "wheels" / Path(name).name)
        found[-1].write_bytes(content)
    return found


def get(args: argparse.Namespace) -> int:
    """Download, and tell the sizes; 1 if the repository leaves no room for a load, 2 if the list cannot be read."""
    try:
        text = "\n".join(HAVE) if args.have is None else args.have.read_text()
    except OSError as error:
        print(f"Cannot read '{args.have}' (--have): {error.strerror}.", file=sys.stderr)
        return 2
    have = {_plain(re.split(r"[=@ ]", line)[0]) for line in text.splitlines() if line}
    names = needed(have, args.python)
    wheels = args.output / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    tags = [word for tag in PLATFORMS for word in ("--platform", tag)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", args.python, *tags, "--dest", str(wheels), *names]
    subprocess.run(command, check=True)
    for name, beginning in STRIPPED.items():
        for path in wheels.glob(f"{name}-*.whl"):
            strip(path, beginning)
    sizes = {path.name: path.stat().st_size / MIB for path in wheels.glob("*.whl")}
    for name, size_mib in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"{size_mib:8.2f} MiB  {name}")
    own_mib, total_mib = repository_mib(), sum(sizes.values())
    room_mib = args.limit_mib - own_mib
    print(f"{total_mib:8.2f} MiB in {len(sizes)} wheels; the repository beside them has {own_mib:.1f} MiB.")
    if room_mib < 2.0:
        print(f"Nothing fits beside it into {args.limit_mib:g} MiB.")
        return 1
    loads = cut(wheels, args.output, room_mib)
    beside = f"with the repository beside each within {args.limit_mib:g} MiB"
    print(
        f"The wheels make one load, {beside}:" if len(loads) == 1 else f"The wheels make {len(loads)} loads, {beside}:"
    )
    for load in loads:
        print(f"{load}: {sum(path.stat().st_size for path in load.iterdir()) / MIB:.1f} MiB")
    return 0


def repository_mib() -> float:
    """Size of the files of the repository that git does not ignore, MiB."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    return sum((ROOT / name).lstat().st_size for name in names if name and (ROOT / name).is_file()) / MIB


def install(args: argparse.Namespace) -> int:
    """Join the loads, and install them with Gantry; 2 if they are not complete."""
    try:
        wheels = joined(args.folder)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    venv.create(args.venv, with_pip=False, clear=True)
    python = args.venv / "bin" / "python"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    # A virtual environment over another one would not see that one's packages.
    lines = [f"import site; site.addsitedir({place!r})" for place in site.getsitepackages()] + [FFMPEG]
    (args.venv / "lib" / version / "site-packages" / "outer.pth").write_text("\n".join(lines) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    pip += ["--no-compile", "--disable-pip-version-check"]
    subprocess.run([*pip, *map(str, wheels)], check=True)
    subprocess.run([*pip, "--no-build-isolation", "--editable", str(ROOT)], check=True)
    print(f"{len(wheels)} wheels and Gantry are installed: {os.path.relpath(python)}")
    return 0


def _plain(name: str) -> str:
    """Name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def main() -> int:
    """Run one of both."""
    parser = argparse.ArgumentParser(description="Wheels for a machine with a GPU and without a network.")
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("get", help="download, and cut into loads")
    one.add_argument("--have", type=Path, metavar="FILE", help="`pip list --format=freeze` of the machine")
    one.add_argument("--output", type=Path, default=ROOT / "build" / "gpu-wheels", metavar="FOLDER")
    one.add_argument("--python", default="3.12", metavar="X.Y", help="of the machine (default: 3.12)")
    one.add_argument("--limit-mib", type=float, default=64.0, metavar="M", help="what travels at once (default: 64)")
    one.set_defaults(run=get)
    one = commands.add_parser("install", help="on the machine: join, and install")
    one.add_argument("folder", type=Path, metavar="FOLDER", help="of the loads")
    one.add_argument("--venv", type=Path, default=ROOT / "build" / "gpu-venv", metavar="FOLDER")
    one.set_defaults(run=install)
    args = parser.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())

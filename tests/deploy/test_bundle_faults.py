"""Bundles that a stranger made, paths that nobody means, and disks that are full: one message, and nothing is lost."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gantry_deploy.bundle.bundle import load_bundle, seal_bundle, update_card, write_bundle, write_zip
from gantry_deploy.bundle.files import NEXT, SCRATCH
from gantry_deploy.bundle.locate import find_bundle, find_source, is_run
from gantry_deploy.cli.main import main
from gantry_deploy.errors import BundleError, ContractError
from gantry_deploy.testing.legs import contract_for, golden_data, linear_model, tiny_robot
from gantry_hardware.errors import GantryError

CONTRACT = contract_for(tiny_robot())
PARTS = {"contract": CONTRACT, "model_bytes": linear_model(CONTRACT), "golden": golden_data(CONTRACT, steps=5)}


@pytest.fixture
def folder(tmp_path):
    return write_bundle(tmp_path / "walk", **PARTS, card={"score": 1})


LIMITED = """
import os, resource, sys
size = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
os.execv(sys.argv[2], sys.argv[2:])
"""


def limited(size, *arguments):
    """Command of a Python whose files have at most so many bytes, as on a full disk.

    A program sets the limit and not a function between fork and exec: gRPC, which other tests load into this process,
    may abort in a fork.
    """
    return [sys.executable, "-c", LIMITED, str(size), sys.executable, *map(str, arguments)]


def gantry(*arguments, files=None, **options):
    """A real process; ``files`` limits their size in bytes."""
    words = ["-B", "-m", "gantry_deploy.cli.main", *map(str, arguments)]
    command = [sys.executable, *words] if files is None else limited(files, *words)
    options.setdefault("capture_output", True)
    return subprocess.run(command, text=True, timeout=600, **options)


def inspected(capsys, *arguments):
    code = main(["inspect", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def zip_of(path, folder, top="", extra=()):
    with zipfile.ZipFile(path, "w") as archive:
        if top:
            archive.writestr(top, b"")
        for entry in sorted(folder.iterdir()):
            archive.writestr(top + entry.name, entry.read_bytes())
        for name, data in extra:
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("top", ["walk/", "a b/", "prüfung ラン 1/"])
def test_a_zip_of_the_folder_is_the_bundle(folder, tmp_path, top):
    path = zip_of(tmp_path / "x.zip", folder, top)
    assert load_bundle(path).contract == CONTRACT
    update_card(path, {"score": 2})
    assert load_bundle(path).card == {"score": 2}


def test_pythons_own_way_to_zip_a_folder(folder, tmp_path):
    import shutil

    path = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, folder.name)
    assert load_bundle(path).card == {"score": 1}


@pytest.mark.parametrize(
    ("top", "extra", "text"),
    [
        ("walk/", [("walk/sub/x", b"")], "'sub/x' is no plain file name; a bundle holds its files, or one folder"),
        ("walk/", [("walk/sub/", b"")], "'sub/' is no plain file name"),
        ("walk/", [("other/x", b"")], "'walk/' is no plain file name"),
        ("walk/", [("x", b"")], "'walk/' is no plain file name"),
        ("walk/", [("__MACOSX/._x", b"")], "is no plain file name"),
        ("walk/", [("walk/evil.py", b"")], r"holds evil\.py, which its manifest does not list"),
        ("a/b/", [], "'b/' is no plain file name"),
        ("../", [], r"'\.\./' is no plain file name"),
        ("/", [], "'/' is no plain file name"),
        ("./", [], r"'\./' is no plain file name"),
        ("a\\b/", [], "is no plain file name"),
    ],
)
def test_other_folders_in_a_zip_are_refused(folder, tmp_path, top, extra, text):
    with pytest.raises(BundleError, match=text):
        load_bundle(zip_of(tmp_path / "x.zip", folder, top, extra))


def test_a_contract_with_a_key_twice_is_refused(folder):
    text = (folder / "contract.json").read_text()
    gains = json.loads(text)["stiffness_nm_rad"]
    twice = text.rstrip().removesuffix("}") + f', "stiffness_nm_rad": {[9.0 for _ in gains]}}}'
    assert json.loads(twice)["stiffness_nm_rad"][0] == 9.0
    (folder / "contract.json").write_text(twice)
    seal_bundle(folder)
    with pytest.raises(ContractError, match="The contract has the key 'stiffness_nm_rad' twice"):
        load_bundle(folder)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"task": "', '"task": "\\u001b[2J\\u001b]0;pwn\\u0007', "expected printable characters"),
        ('"preset": "', '"preset": "a\\nb', "expected printable characters"),
        ('"git_commit": "', '"git_commit": "\\ud800', "half of a surrogate pair"),
        ('"created_utc": "', '"created_utc": "' + "x" * 1000, "a text of 1000 characters"),
        ('"seed": ', '"seed": 1' + "0" * 30 + ", ", "does not fit 64 bits"),
        ('"rate_hz": ', '"rate_hz": NaN, "x": ', "NaN in it"),
        ("{", '{"\\u001b[31m": 1, ', "expected printable characters"),
        ("{", '{"x": "' + "y" * 2**20 + '", ', "larger than 1048576 bytes"),
    ],
)
def test_texts_of_a_contract_are_plain_and_short(folder, capsys, old, new, text):
    path = folder / "contract.json"
    found = path.read_text()
    assert old in found
    path.write_text(found.replace(old, new, 1))
    seal_bundle(folder)
    code, out, err = inspected(capsys, folder)
    assert (code, out) == (2, "")
    assert text in err
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    assert len(err) < 1000


CARDS = {
    "escapes": {"notes": "\x1b[2J\x1b]0;pwn\x07", "\x1b[31mred": "\x9b31m"},
    "lines": {"notes": "a\nb\rc\u2028d", "x\ny": 1},
    "directions": {"notes": "abc\u202egnp.exe"},
    "markup": {"notes": "[bold]b[/bold] [/] [link=http://x]y[/link]", "[/red]": "[red]"},
    "a long text": {"notes": "x" * 500_000},
    "a long list": {"notes": list(range(100_000))},
    "many": {f"key {i}": i for i in range(20_000)},
    "deep": {"a": {"b": {"c": [[[1]]]}}},
    "numbers": {"a": float("nan"), "b": float("inf"), "c": 1e308},
}


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_a_card_says_nothing_to_the_terminal(folder, capsys, card):
    update_card(folder, card)
    code, out, err = inspected(capsys, folder)
    assert (code, err) == (0, "")
    assert all(line.isprintable() for line in out.split("\n"))
    assert len(out) < 60_000
    if "[/red]" in card:
        assert "[/red]" in out
        assert "[bold]b[/bold] [/]" in out


def test_half_a_surrogate_pair_in_a_card_is_refused(folder, capsys):
    (folder / "card.json").write_text('{"notes": "\\ud800"}')
    seal_bundle(folder)
    code, _, err = inspected(capsys, folder)
    assert (code, "'card.json' has the text '\\ud800', which holds half" in err) == (2, True)


def test_a_manifest_that_lists_odd_names_and_hashes(folder, capsys):
    manifest = json.loads((folder / "manifest.json").read_text())
    for files in (
        {**manifest["files"], "\x1b[2J\nx": "0"},
        {**manifest["files"], "policy.onnx": "\x1b[2J" * 10_000},
        {**manifest["files"], "policy.onnx": [1] * 100_000},
    ):
        (folder / "manifest.json").write_text(json.dumps({**manifest, "files": files}))
        code, out, err = inspected(capsys, folder)
        assert (code, out) == (2, "")
        assert err[:-1].isprintable()
        assert len(err) < 1000


ODD_PATHS = {
    "long": ("a" * 300, "File name too long"),
    "very long": ("a/" * 3000, "File name too long"),
    "a zero byte": ("a\0b", "embedded null"),
    "two lines": ("a\nb", "There is no bundle at a\\nb;"),
    "an escape": ("a\x1b[2Jb", "There is no bundle at a\\x1b[2Jb;"),
    "not utf-8": ("a\udcffb", "There is no bundle at a\\udcffb;"),
    "a broken link": ("broken", "is a link to 'nowhere', and nothing is there"),
    "a loop": ("loop", "Too many levels of symbolic links"),
    "a file": ("plain.txt", "is no readable zip of a bundle: File is not a zip file"),
    "nothing in a file": ("plain.txt/x", "There is no bundle at plain.txt/x;"),
    "an empty folder": ("empty", "has no manifest.json; it holds: (nothing)"),
    "a pipe": ("pipe", "There is no bundle at pipe;"),
    "a device": ("/dev/zero", "There is no bundle at /dev/zero;"),
    "a user's home": ("~nobody-like-this/x", "There is no bundle at ~nobody-like-this/x;"),
    "a home": ("~", "There is no bundle at ~;"),
    "dots": ("../../../../../../../../..", "holds"),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("text", "message"), ODD_PATHS.values(), ids=ODD_PATHS)
def test_an_odd_path_is_one_message(tmp_path, monkeypatch, capsys, text, message):
    monkeypatch.chdir(tmp_path)
    Path("broken").symlink_to("nowhere")
    Path("loop").symlink_to("loop")
    Path("plain.txt").write_text("words")
    Path("empty").mkdir()
    os.mkfifo("pipe")
    code, out, err = inspected(capsys, text)
    assert (code, out) == (2, "")
    assert message in err or text.startswith("..")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    assert len(err) < 1000


@pytest.mark.parametrize("find", [find_bundle, find_source, lambda path: is_run(Path(path))])
def test_finding_raises_nothing_else(tmp_path, monkeypatch, find):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    for text in ("a" * 300, "a\0b", "loop", "loop/x", "a\udcff", "x" * 10_000, "/proc/self/mem/x"):
        with contextlib.suppress(GantryError):
            find(text)


def test_a_bundle_whose_name_has_two_lines_is_shown_on_one(tmp_path, capsys):
    folder = write_bundle(tmp_path / "a\nb\x1b[2J", **PARTS)
    code, out, _ = inspected(capsys, folder)
    assert code == 0
    assert "a\\nb\\x1b[2J" in "".join(line.strip() for line in out.split("\n"))
    (folder / "golden.npz").write_bytes(b"x")
    code, _, err = inspected(capsys, folder)
    assert (code, err.count("\n")) == (2, 1)


AS_A_STRANGER = """
import os, sys
from gantry_deploy.bundle.bundle import load_bundle
from gantry_deploy.bundle.locate import find_bundle
from gantry_hardware.errors import GantryError

os.chdir(sys.argv[1])
if os.getuid() == 0:
    os.setuid(65534)
for read in (lambda: load_bundle("walk"), lambda: find_bundle("walk/x"), lambda: load_bundle(find_bundle("walk.zip"))):
    try:
        read()
    except GantryError as error:
        print(error)
"""


def test_what_may_not_be_read_is_one_message(folder, tmp_path):
    """As a user without rights, since tests may run as root."""
    write_zip(folder, tmp_path / "walk.zip").chmod(0)
    folder.chmod(0)
    done = subprocess.run([sys.executable, "-c", AS_A_STRANGER, tmp_path], capture_output=True, text=True, timeout=600)
    folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == done.stdout.count("Permission denied") == 3


def test_leftovers_of_a_killed_writer_count_for_nothing(folder, capsys):
    (folder / SCRATCH).mkdir()
    (folder / SCRATCH / "policy.onnx").write_bytes(b"half")
    (folder / ".card.json.123.tmp").write_bytes(b"half")
    assert load_bundle(folder).card == {"score": 1}
    write_bundle(folder, **PARTS)
    assert load_bundle(folder).card is None
    assert not (folder / SCRATCH).exists()
    (folder / NEXT).symlink_to(folder)
    with pytest.raises(BundleError, match=r"'\.next' is a link"):
        load_bundle(folder)


FULL = 600
"""Bytes that a file may have where the disk is said to be full: fewer than any result or card below."""


def test_a_result_on_a_full_disk_is_a_refusal_and_the_old_one_stays(folder, tmp_path):
    target = tmp_path / "result.json"
    target.write_text("old")
    done = gantry("inspect", folder, "--json", target, files=FULL)
    assert done.returncode == 2
    assert done.stderr == f"Error: Cannot write the result to '{target}': File too large.\n"
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.json", "walk"]


def test_output_on_a_full_device_is_a_refusal(folder):
    with open("/dev/full", "w") as full:
        for arguments in (
            ("inspect", folder),
            ("inspect", folder, "--json", "-"),
            ("inspect", folder, "--json", full.name),
        ):
            done = gantry(*arguments, capture_output=False, stdout=full, stderr=subprocess.PIPE)
            assert done.returncode in (1, 2)
            assert "No space left on device" in done.stderr
            assert "Traceback" not in done.stderr


WRITE_CARD = """
import sys
from types import SimpleNamespace
from gantry_deploy.bundle.bundle import load_bundle, write_zip
from gantry_deploy.cli import check, main
from gantry_deploy.cli.command import Command

def run(args):
    path = sys.argv[1]
    if sys.argv[2] == "card":
        stages = [SimpleNamespace(name="x" * 2000, limit=1e-5, value=0.0)]
        report = dict.fromkeys(("verdict", "scores", "acceptance", "faults", "conditions"), None) | {"stages": stages}
        check._write_card(SimpleNamespace(bundle=path), load_bundle(path), report)
    else:
        write_zip(path, sys.argv[2])
    return 0

main.load_command = lambda entry: Command("inspect", "", lambda parser: None, run)
sys.exit(main.main(["inspect"]))
"""


@pytest.mark.parametrize("packed", [False, True])
def test_a_card_on_a_full_disk(folder, tmp_path, packed):
    path = write_zip(folder, tmp_path / "walk.zip") if packed else folder
    before = {item: item.read_bytes() for item in tmp_path.rglob("*") if item.is_file()}

    command = limited(FULL, "-B", "-c", WRITE_CARD, str(path), "card")
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2, done.stderr
    assert f"Cannot write the card of {path}: File too large." in done.stderr
    assert {item: item.read_bytes() for item in tmp_path.rglob("*") if item.is_file()} == before
    assert load_bundle(path).card == {"score": 1}


def test_a_zip_on_a_full_disk_names_the_file(folder, tmp_path):
    target = tmp_path / "walk.zip"

    command = limited(FULL, "-B", "-c", WRITE_CARD, str(folder), str(target))
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2, done.stderr
    assert done.stderr == f"Error: File too large: '{target}'.\n"
    assert not target.exists()


def test_a_golden_file_with_more_arrays_than_any_policy_sees(folder):
    buffer = io.BytesIO()
    np.savez(buffer, **{f"array{i}": np.zeros(1) for i in range(5000)})
    (folder / "golden.npz").write_bytes(buffer.getvalue())
    seal_bundle(folder)
    with pytest.raises(BundleError, match=r"golden\.npz is not readable: it holds more than 4096 files"):
        load_bundle(folder)

"""The packages that docs/extending-task.md, -algorithm.md and -driver.md show whole, copied as their reader does."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
from markdown_it import MarkdownIt

from gantry_deploy.cli.main import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [DOCS / "extending-task.md", DOCS / "extending-algorithm.md"]


def blocks(page):
    """Text before each block of code, its language, and its content."""
    before = ""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "inline":
            before = token.content
        elif token.type == "fence":
            yield before, token.info, token.content


def install(folder, monkeypatch):
    """What `pip install -e` does: the folder on the path, and its entry points beside the package's name."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in of.items()) for group, of in groups]
    (info / "entry_points.txt").write_text("".join(lines))
    monkeypatch.syspath_prepend(folder)


def without_numbers(text):
    """Lines as they are on any machine: scores, times and widths of columns left out, and progress."""
    lines = [re.sub(r"\d+(\.\d+)?", "#", " ".join(line.split())) for line in text.splitlines()]
    return {line.replace("-#", "#") for line in lines if line}


@pytest.mark.slow
def test_pages_work_as_they_stand(tmp_path, monkeypatch, one_thread, capsys):
    monkeypatch.chdir(tmp_path)
    for page in PAGES:
        shown, printed = set(), ""
        for before, language, content in blocks(page):
            if name := re.fullmatch(r"`(.*)`:", before):
                path = tmp_path / name[1]
                path.parent.mkdir(exist_ok=True)
                path.write_text(content)
            elif language == "sh":
                for line in content.splitlines():
                    words = shlex.split(line, comments=True)
                    if words[:3] == ["pip", "install", "-e"]:
                        install(tmp_path / words[3], monkeypatch)
                    else:
                        assert words[0] == "gantry"
                        assert main(words[1:]) == 0, line
                        printed += capsys.readouterr().out
            elif language == "text":
                shown |= without_numbers(content) - {"..."}
        assert len(shown) > 3
        assert shown <= without_numbers(printed)


def answered(command, environment):
    """Output of a command that ends with 0; a busy machine may fail rates and ages of readings, three times."""
    busy = r"FAILED: network|state is \d+ ms old, allowed are|WRONG  state +readings are"
    for _ in range(4):
        code, told = run_answered(command, environment)
        if code != 1 or not re.search(busy, told):
            break
    assert code == 0, told
    return told.replace("[y/n] ", "\n")


def run_answered(command, environment):
    """Exit code and output of a command; every question is answered with yes once it is asked."""
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    told = b""
    while byte := process.stdout.read(1):
        told += byte
        if told.endswith(b"[y/n] "):
            process.stdin.write(b"y\n")
            process.stdin.flush()
    return process.wait(), told.decode()


def test_the_page_of_a_driver_works_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page, firmware, printed, shown = DOCS / "extending-driver.md", None, "", set()
    paths = os.pathsep.join([str(tmp_path / "pantilt"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    try:
        for before, language, content in blocks(page):
            if name := re.fullmatch(r"`(.*)`:", before):
                path = tmp_path / name[1]
                path.parent.mkdir(exist_ok=True, parents=True)
                path.write_text(content)
            elif language == "text":
                shown |= without_numbers(content)
            elif language == "python":
                exec(compile(content, str(page), "exec"), {})
            for line in content.splitlines() if language == "sh" else ():
                words = shlex.split(line)
                if words[0] == "pip":
                    install(tmp_path / words[3], monkeypatch)
                elif words[0] == "python":
                    command = [sys.executable, *words[1:]]
                    firmware = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
                    assert firmware.stdout.readline()  # It listens from now on.
                else:
                    command = [sys.executable, "-m", "gantry_deploy.cli.entry", *words[1:]]
                    printed += answered(command, environment)
    finally:
        if firmware is not None:
            firmware.terminate()
            firmware.wait()
    assert len(shown) == 2
    assert shown <= without_numbers(printed), printed

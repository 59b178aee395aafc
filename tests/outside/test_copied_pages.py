"""The packages that docs/extending-task.md and docs/extending-algorithm.md show whole, copied as their reader does."""

import re
import shlex
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

"""The pages and the site's command reference against the program itself; `make docs` builds the whole site, strictly.

Building every package's API takes minutes on a busy machine, so the site is built here with one package of them.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from gantry_deploy.cli.command import UsageError
from gantry_deploy.cli.main import main, whole_parser
from gantry_deploy.cli.parser import option_names

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts" / "docs"
ELSEWHERE = ("README.md", "ros_ws/README.md", "sim/gantry_sim/pretrained/README.md")
PAGES = sorted([*(ROOT / name for name in ELSEWHERE), *(ROOT / "docs").rglob("*.md")])
PARSER, BROKEN = whole_parser()


def page_name(path):
    return path.relative_to(ROOT).as_posix()


def load(name, monkeypatch):
    """A module of scripts/docs, whose modules import one another by their bare names."""
    monkeypatch.syspath_prepend(SCRIPTS)
    for other in ("commands", "pages", "site_source"):
        monkeypatch.delitem(sys.modules, other, raising=False)
    return __import__(name)


def code_of(path, kind=("fence", "code_block")):
    """Blocks of code of a page with their language; indented ones have none."""
    tokens = MarkdownIt().parse(path.read_text(encoding="utf-8"))
    return [(token.info.strip(), token.content) for token in tokens if token.type in kind]


def spans_of(path):
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))
    inner = [child for token in tokens for child in token.children or ()]
    return [child.content for child in inner if child.type == "code_inline"]


def command_lines(text):
    """Words after `gantry` of every command line in a block: continued lines joined, comments and operators off."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        if not re.match(r"\s*(\$ )?(\.venv/bin/)?gantry\s", line):
            continue
        lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars=";&|")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words = list(lexer)
        end = next((index for index, word in enumerate(words) if set(word) <= set(";&|")), len(words))
        found.append(words[1:end])
    return found


def parse(words):
    try:
        PARSER.parse_all(words)
    except SystemExit:  # --help and --version leave this way; a mistake is a UsageError.
        return


def unknown_option(words):
    """The first option in a part of a command line that no command of it has; None if all are known."""
    parser, words = PARSER, list(words)
    while words and (sub := sub_parsers(parser).get(words[0])):
        parser = sub
        words.pop(0)
    known = {*option_names(parser), "--help", "-h"}
    return next((word for word in words if word.startswith("--") and word.partition("=")[0] not in known), None)


def sub_parsers(parser):
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices) if actions else {}


@pytest.fixture
def a_place_to_write(tmp_path, monkeypatch):
    """Options that name a file to write are refused where its folder does not exist."""
    for folder in ("runs", "demos", "recordings"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path)


def test_the_reference_covers_every_command_and_option(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = load("commands", monkeypatch).write_commands(tmp_path / "commands")
    assert len(names) == len(set(names))
    registered = {f"gantry {entry.name}" for entry in entry_points(group="gantry.commands")}
    benchmarks = {f"gantry bench {entry.name}" for entry in entry_points(group="gantry.benchmarks")}
    assert registered | benchmarks <= set(names)
    assert {"gantry train", "gantry map eval", "gantry data replay", "gantry bench drive table"} <= set(names)
    for name in names:
        parser = PARSER
        for word in name.split()[1:]:
            parser = sub_parsers(parser)[word]
        page = (tmp_path / "commands" / f"{name.split()[1]}.md").read_text()
        section = page.partition(f" {name}\n")[2].partition("\n(gantry-")[0]
        documented = set(re.findall(r"--[a-z][\w-]*", "\n".join(re.findall(r"\{option\} (.*)", section))))
        assert documented == {option for option in option_names(parser) if option != "--help"}, name
    index = (tmp_path / "commands" / "index.md").read_text()
    assert all(f"`{name}`" in index for name in registered)


def test_every_command_of_this_installation_can_be_loaded():
    assert not BROKEN


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_command_lines_of_a_page_are_parsed_by_the_program(path, a_place_to_write):
    wrong = []
    for _, text in code_of(path):
        for words in command_lines(text):
            try:
                parse(words)
            except UsageError as error:
                wrong.append(f"gantry {shlex.join(words)}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_commands_in_the_text_of_a_page_have_the_options_that_it_names(path):
    wrong = []
    for span in spans_of(path):
        for words in command_lines(span):
            is_command = words and (words[0] in sub_parsers(PARSER) or words[0].isupper() or words[0].startswith("-"))
            if not is_command or unknown_option(words[words[0].isupper() :]):
                wrong.append(span)
    assert not wrong


def test_a_page_that_names_a_wrong_option_would_be_found(a_place_to_write):
    (words,) = command_lines("gantry train velocity-flat-go2 \\\n    --stepps 3  # oh\n")
    assert words == ["train", "velocity-flat-go2", "--stepps", "3"]
    with pytest.raises(UsageError, match="--steps"):
        parse(words)
    assert unknown_option(words) == "--stepps"
    assert unknown_option(["bench", "drive", "table", "--tasks", "drive-lane"]) is None
    assert command_lines("cd x\ngantry tasks | head; gantry nothing\n") == [["tasks"]]


def test_the_listing_of_tasks_is_the_one_that_is_printed(capsys):
    blocks = [text for language, text in code_of(ROOT / "docs/commands.md") if "velocity-flat-g1 " in text]
    assert main(["tasks"]) == 0
    assert blocks[0].splitlines()[-1].startswith("yam-tell-push")
    assert set(blocks[0].splitlines()) <= set(capsys.readouterr().out.splitlines())


def test_tables_of_benchmarks_are_those_of_the_committed_numbers(monkeypatch):
    tables = load("bench_tables", monkeypatch)
    page, seen = tables.committed_page(), set()
    for name in tables.PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert tables.filled(text, page) == text, f"{name}: python scripts/docs/bench_tables.py makes it anew"
        seen |= set(re.findall(r"<!-- page\.json: (.*) -->", text))
    assert seen == {*tables.CHOICES, tables.MACHINE}
    page["rows"][1]["ratio"] += 1.0
    assert tables.filled(text, page) != text


def test_checking_the_tables_of_benchmarks_writes_nothing(monkeypatch, tmp_path):
    tables = load("bench_tables", monkeypatch)
    for name in (*tables.PAGES, tables.NUMBERS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    assert tables.main(["--check"], tmp_path) == 0
    numbers = tables.committed_page()
    numbers["rows"][1]["ratio"] += 1.0
    (tmp_path / tables.NUMBERS).write_text(json.dumps(numbers))
    before = [(tmp_path / name).read_text() for name in tables.PAGES]
    assert tables.main(["--check"], tmp_path) == 1
    assert [(tmp_path / name).read_text() for name in tables.PAGES] == before
    with pytest.raises(SystemExit):
        tables.main(["--chekc"], tmp_path)
    assert tables.main([], tmp_path) == 0
    assert [(tmp_path / name).read_text() for name in tables.PAGES] != before
    assert tables.main(["--check"], tmp_path) == 0


def test_most_pages_have_command_lines():
    counts = {page_name(path): sum(len(command_lines(text)) for _, text in code_of(path)) for path in PAGES}
    assert counts["README.md"] >= 25
    assert counts["docs/datasets.md"] >= 8  # These are indented, not fenced.
    assert counts["docs/index.md"] > 10


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_python_examples_compile(path):
    for language, text in code_of(path):
        if language == "python":
            compile(textwrap.dedent(text), str(path), "exec")


def test_links_of_every_page_lead_somewhere(monkeypatch, tmp_path):
    pages = load("site_source", monkeypatch).write_pages(ROOT, tmp_path)
    assert {"index.md", "readme.md", "ros2.md", "driving.md"} <= {page.place for page in pages}
    assert "](driving.md)" in (tmp_path / "readme.md").read_text()
    assert "](readme.md)" in (tmp_path / "index.md").read_text()


def test_links_are_rewritten_and_dead_ones_refused(monkeypatch, tmp_path):
    module = load("pages", monkeypatch)
    (tmp_path / "docs" / "experiments").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Top\n")
    (tmp_path / "docs" / "index.md").write_text(
        "[one](experiments/one.md#here) `[code](gone.md)` [web](https://a.org)\n"
    )
    page = tmp_path / "docs" / "experiments" / "one.md"
    page.write_text(
        "[top](../../README.md), [`README.md`](../index.md)\n\n```sh\n[x](gone.md)\n```\n\n[src](../../run.py)\n"
    )
    (tmp_path / "run.py").write_text("")
    found = module.find_pages(tmp_path)
    texts = {item.place: module.site_text(item, tmp_path, found) for item in found}
    assert texts["index.md"] == "[one](experiments/one.md#here) `[code](gone.md)` [web](https://a.org)\n"
    assert texts["experiments/one.md"].startswith("[top](../readme.md), [`README.md`](../index.md)\n")
    assert texts["experiments/one.md"].endswith("[x](gone.md)\n```\n\nsrc (`run.py`)\n")
    page.write_text("\n[lost](../two.md)\n")
    with pytest.raises(module.PageError, match=r"docs/experiments/one\.md:2: .*'\.\./two\.md' leads to nothing"):
        [module.site_text(item, tmp_path, found) for item in found]


def test_new_pages_and_folders_stand_in_the_contents(monkeypatch):
    module = load("site_source", monkeypatch)
    places = ("index.md", "glossary.md", "arms.md", "experiments/one.md", "experiments/index.md", "readme.md")
    text = module.contents([module.Page(place, place) for place in places])
    assert text.index("\narms\n") < text.index("Experiments") < text.index("experiments/index\nexperiments/one\n")
    assert text.index("Reference") < text.index("\nglossary\n") < text.index("<readme>")


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_asks_nothing_of_the_network(tmp_path):
    pytest.importorskip("autoapi", reason="the extra 'docs' is not installed")
    output = tmp_path / "site"
    command = [sys.executable, SCRIPTS, "--output", output, "--package", "gantry_hardware"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=os.environ | {"PYTHONPATH": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "robot.md" not in (output / "robots.html").read_text()
    assert 'id="cmdoption-gantry-train-steps"' in (output / "commands" / "train.html").read_text()
    api = (output / "api" / "gantry_hardware" / "model" / "spec" / "index.html").read_text()
    assert 'id="gantry_hardware.model.spec.JointSpec.lower_rad"' in api
    loaded = re.compile(r"""<(?:link|script|img|iframe)\b[^>]*(?:href|src)=["'](?:https?:)?//""")
    for page in output.rglob("*.html"):
        assert not loaded.search(page.read_text(encoding="utf-8")), page
    for sheet in output.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?https?:", sheet.read_text(encoding="utf-8")), sheet

"""Tables of README.md and docs/benchmarks.md from the committed page of numbers, docs/bench/page.json.

python scripts/docs/bench_tables.py [--check]

``gantry bench page --output FOLDER --json docs/bench/page.json`` replaces the numbers, which were first put together
from printed output (``note`` in the file); remarks on its rows (``note`` of a row) have to be added again. The tables
stand between ``<!-- page.json: NAME -->`` and ``<!-- end -->``, with a name of :data:`CHOICES`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gantry_hardware.files.json_file import read_json_object
from gantry_sim.benchmarks.page_rows import Row, markdown_of, rows_from
from gantry_sim.benchmarks.summary import MAX_BYTES, PEERS

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = "docs/bench/page.json"
PAGES = ("README.md", "docs/benchmarks.md")
CHOICES: dict[str, Callable[[Row], bool]] = {
    "rows with an aim": lambda row: row.has_aim,
    "parts": lambda row: row.part != PEERS,
    "peers": lambda row: row.part == PEERS,
}
"""Rows of a table by its name."""
MACHINE = "machine"
"""Name of the place for hardware and versions."""

_TABLE = re.compile(r"(?P<begin><!-- page\.json: (?P<name>[^>]*) -->\n)(?P<table>.*?)(?P<end><!-- end -->)", re.DOTALL)


def committed_page(root: Path = ROOT) -> dict[str, Any]:
    """Content of the committed page of numbers: ``hardware``, ``versions`` and ``rows``.

    Raises:
        GantryError: If there is none.
    """
    return read_json_object(root / NUMBERS, max_bytes=MAX_BYTES)


def filled(text: str, page: Mapping[str, Any]) -> str:
    """Text with its tables made anew.

    Args:
        text: Markdown.
        page: See :func:`committed_page`.

    Raises:
        GantryError: If the rows are something else.
        KeyError: If a table has a name that none has.
    """
    rows = rows_from(page["rows"], NUMBERS)

    def table(match: re.Match[str]) -> str:
        if match["name"] == MACHINE:
            about = {**page["hardware"], **page["versions"]}
            made = ", ".join(f"{key} {value}" for key, value in about.items()) + ".\n"
        else:
            made = markdown_of([row for row in rows if CHOICES[match["name"]](row)])
        return f"{match['begin']}\n{made}\n{match['end']}"

    return _TABLE.sub(table, text)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Make the tables of all pages anew; with ``--check`` change nothing, and return 1 if a page differs."""
    parser = argparse.ArgumentParser(description=f"Tables of {' and '.join(PAGES)} from {NUMBERS}.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a page is not up to date")
    check, page, changed = parser.parse_args(arguments).check, committed_page(root), []
    for name in PAGES:
        path = root / name
        old = path.read_text(encoding="utf-8")
        new = filled(old, page)
        if new != old:
            changed.append(name)
            if not check:
                path.write_text(new, encoding="utf-8")
    told = f"{'Not up to date' if check else 'Changed'}: {', '.join(changed)}"
    print(told if changed else "All tables are up to date.")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())

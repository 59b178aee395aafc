"""Build of the documentation site: guides, glossary, command reference and API reference; warnings are errors.

Nothing is fetched: no inventories of other projects, no fonts, no scripts.

    python scripts/docs                       # build/docs/index.html
    python scripts/docs --output FOLDER
    python scripts/docs --package gantry_hardware   # API of one package, to look at a page quickly
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from commands import FOLDER, write_commands
from pages import PageError
from site_source import write_pages

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
ONE_PACKAGE = "GANTRY_DOCS_PACKAGE"
"""Variable by which ``conf.py`` learns of ``--package``."""


def main() -> int:
    """Build the site that was asked for and return Sphinx's exit code; 0 without a single warning alone."""
    parser = argparse.ArgumentParser(prog="docs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "docs", metavar="FOLDER")
    parser.add_argument("--package", metavar="NAME", help="leave out the API of all other packages")
    args = parser.parse_args()
    output: Path = args.output.resolve()
    source, cache = output.with_name(f"{output.name}-source"), output.with_name(f"{output.name}-cache")
    for folder in (source, output):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        write_pages(ROOT, source)
    except PageError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    write_commands(source / FOLDER)
    if args.package:
        os.environ[ONE_PACKAGE] = args.package
    code = _build(source, output, cache)
    if code != 0:
        shutil.rmtree(cache, ignore_errors=True)  # The next build would leave out pages that this one has read.
    else:
        print(f"Documentation: {output / 'index.html'}")
    return code


def _build(source: Path, output: Path, cache: Path) -> int:
    from sphinx.cmd.build import main as sphinx

    strict = ["--fail-on-warning", "--keep-going", "--nitpicky"]
    return sphinx(["-j", "auto", *strict, "-b", "html", "-c", str(HERE), "-d", str(cache), str(source), str(output)])


if __name__ == "__main__":
    sys.exit(main())

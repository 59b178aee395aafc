"""Size and structure of product code: lines, files near the limit, folders, and questions about the kind of robot.

python scripts/measure/structure.py
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hardware", "mapping", "deploy", "policies", "sim", "ros_ws/src")
LIMIT, NEAR = 400, 5
"""Most lines of a file, and the distance from it that counts as near."""
KINDS = re.compile(
    r"\bcontract\.(?:arm|drive|chunk|is_residual)\b|\bis_(?:arm|car)\(|\bis_(?:about_arms|arm_task|gym_task)\b"
    r"|\bspec\.(?:car|chain)\b|\bisinstance\((?:robot|scene)\b"
    r"|\.embodiment [!=]= \"|\bisinstance\([a-z_.]*\.body\b|(?<!def )\b(?:body_as|capability)\("
)
"""Questions about the kind of robot: branches on it, bodies of one kind that are taken for granted, capabilities."""
MAY_KNOW = "deploy/gantry_deploy/embodiments"
"""Folder that is not counted: an embodiment is where a kind of robot is known."""
MECHANISMS = ("isinstance(self.body, kind)", "isinstance(robot, kind)")
"""Lines that answer such questions for others, and know no kind themselves."""


def product_files() -> list[Path]:
    """Python files of all packages, without tests and scripts."""
    return sorted(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py"))


def lines_that_ask_for_the_kind(text: str) -> int:
    """Count of lines with a question about the kind of robot; comments and docstrings count like code."""
    asking = (line for line in text.splitlines() if KINDS.search(line))
    return sum(not any(mechanism in line for mechanism in MECHANISMS) for line in asking)


def questions(texts: dict[Path, str]) -> dict[Path, int]:
    """Lines that ask for the kind of robot by file, of files that ask and do not lie in :data:`MAY_KNOW`."""
    counts = {path: lines_that_ask_for_the_kind(text) for path, text in texts.items()}
    return {path: count for path, count in counts.items() if count and not path.is_relative_to(ROOT / MAY_KNOW)}


def main() -> None:
    """Print every figure with its file or folder."""
    files = product_files()
    texts = {path: path.read_text() for path in files}
    sizes = {path: len(text.splitlines()) for path, text in texts.items()}
    asks = questions(texts)
    near = [path for path, lines in sizes.items() if lines >= LIMIT - NEAR]
    folders = Counter(path.parent for path in files if path.name != "__init__.py")
    print(f"files                                  {len(files)}")
    print(f"lines                                  {sum(sizes.values())}")
    print(f"median lines of a file                 {statistics.median(sizes.values()):g}")
    print(f"files within {NEAR} lines of {LIMIT}            {len(near)}")
    for path in near:
        print(f"    {sizes[path]}  {path.relative_to(ROOT)}")
    print(f"folders with more than 15 modules      {sum(count > 15 for count in folders.values())}")
    for folder, count in folders.most_common():
        if count > 15:
            print(f"    {count}  {folder.relative_to(ROOT)}")
    print(f"lines that ask for the kind of robot   {sum(asks.values())} in {len(asks)} files")
    for path, count in sorted(asks.items(), key=lambda item: -item[1]):
        print(f"    {count}  {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

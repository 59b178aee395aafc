"""Markdown pages of the site: collected from the repository by pattern, with links that hold inside the site."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ELSEWHERE = {
    "README.md": "readme.md",
    "CHANGELOG.md": "changelog.md",
    "ros_ws/README.md": "ros2.md",
    "sim/gantry_sim/pretrained/README.md": "pretrained.md",
}
"""Pages outside ``docs/``, by their path in the repository, and their place in the site."""
FRONT_PAGE = "index.md"
"""Place of the first page, ``docs/index.md`` in the repository."""

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)")
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})")
_SPAN = re.compile(r"(`+)(?!`)(?:.*?)(?<!`)\1(?!`)")
_URL = re.compile(r"[a-z][a-z0-9+.-]*:")


class PageError(Exception):
    """A page that the site cannot hold as it is, with its path and line."""


@dataclass(frozen=True)
class Page:
    """One Markdown page."""

    source: str
    """Path in the repository, with slashes."""
    place: str
    """Path in the site's source, with slashes."""


def find_pages(root: Path) -> list[Page]:
    """Every page of a repository: what lies below ``docs/``, and those of :data:`ELSEWHERE` that exist."""
    below = sorted(path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md"))
    pages = [Page(source, source.removeprefix("docs/")) for source in below]
    pages += [Page(source, place) for source, place in ELSEWHERE.items() if (root / source).is_file()]
    places = [page.place for page in pages]
    for page in pages:
        if places.count(page.place) > 1:
            raise PageError(f"{page.source}: the site has another page at {page.place}")
    return pages


def site_text(page: Page, root: Path, pages: list[Page]) -> str:
    """Text of a page with its links rewritten: to pages of the site, and to files as their path in code.

    Raises:
        PageError: If a link leads to nothing.
    """
    places = {other.source: other.place for other in pages}

    def replaced(number: int, match: re.Match[str]) -> str:
        text, target = match["text"], match["target"]
        if _URL.match(target) or target.startswith("#"):
            return match[0]
        path, _, anchor = target.partition("#")
        source = _resolved(page.source, path)
        if source is None or not (root / source).exists():
            raise PageError(f"{page.source}:{number}: the link to '{target}' leads to nothing")
        if source in places:
            place = _relative(page.place, places[source])
            return f"[{text}]({place}{'#' + anchor if anchor else ''})"
        return f"`{source}`" if text.strip("`") == source else f"{text} (`{source}`)"

    return rewrite_links((root / page.source).read_text(encoding="utf-8"), replaced)


def rewrite_links(text: str, replaced: Callable[[int, re.Match[str]], str]) -> str:
    """Replace the links of a Markdown text, those in code left alone.

    Args:
        text: Markdown.
        replaced: New text of a link, from the number of its line and the match with groups ``text`` and ``target``.
    """
    lines = []
    for number, line, code in _marked_lines(text):
        lines.append(line if code else _outside_code(line, number, replaced))
    return "".join(lines)


def _marked_lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Lines with their numbers, and whether each belongs to a block of code."""
    fence = ""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        match = _FENCE.match(line)
        if fence:
            yield number, line, True
            if match and match["mark"].startswith(fence) and not line[match.end() :].strip():
                fence = ""
        elif match:
            fence = match["mark"]
            yield number, line, True
        else:
            yield number, line, line.startswith("    ")


def _outside_code(line: str, number: int, replaced: Callable[[int, re.Match[str]], str]) -> str:
    spans = [match.span() for match in _SPAN.finditer(line)]

    def outside(match: re.Match[str]) -> str:
        inside = any(start < match.start() < end for start, end in spans)
        return match[0] if inside else replaced(number, match)

    return _LINK.sub(outside, line)


def _resolved(source: str, path: str) -> str | None:
    """Path in the repository of a relative link; None outside it."""
    parts: list[str] = []
    for part in (PurePosixPath(source).parent / path).parts:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            return None
    return "/".join(parts) or "."


def _relative(place: str, other: str) -> str:
    """Link from one place of the site to another."""
    up = len(PurePosixPath(place).parts) - 1
    return "../" * up + other

"""Source of the site: the repository's pages in their places, and the tables of contents that join them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from pages import ELSEWHERE, FRONT_PAGE, Page, PageError, find_pages, site_text

TITLES = {"readme.md": "Overview (README)", "changelog.md": "Changelog", "pretrained.md": "Policies that come along"}
"""Entries whose name in the table of contents is not their first heading."""
GLOSSARY = "glossary.md"
REFERENCE = {"commands/index": "Commands", "api/index": "Python API"}
"""Pages that are written at build time."""


def write_pages(root: Path, source: Path) -> list[Page]:
    """Write every page of a repository into the site's source.

    Raises:
        PageError: If a link leads to nothing, or there is no front page.
    """
    pages = find_pages(root)
    if FRONT_PAGE not in {page.place for page in pages}:
        raise PageError(f"docs/{FRONT_PAGE}, the front page, is missing")
    for page in pages:
        text = site_text(page, root, pages)
        if page.place == FRONT_PAGE:
            text += contents(pages)
        path = source / page.place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return pages


def contents(pages: list[Page]) -> str:
    """Tables of contents for the side bar, by section; each page stands in one of them."""
    places = sorted((page.place for page in pages), key=_rank)
    guides = [place for place in places if "/" not in place and place not in {*TITLES, GLOSSARY, FRONT_PAGE}]
    folders = sorted({place.partition("/")[0] for place in places if "/" in place})
    text = _toctree("Guides", [_entry(place) for place in guides])
    for folder in folders:
        inside = [_entry(place) for place in places if place.startswith(f"{folder}/")]
        text += _toctree(folder.replace("-", " ").replace("_", " ").capitalize(), inside)
    reference = [f"{title} <{place}>" for place, title in REFERENCE.items()]
    text += _toctree("Reference", [*reference, *(_entry(place) for place in places if place == GLOSSARY)])
    return text + _toctree("Project", [_entry(place) for place in TITLES if place in places])


def _rank(place: str) -> tuple[str, bool, str]:
    """By folder; in it, the page that introduces it first."""
    path = PurePosixPath(place)
    return str(path.parent), path.stem.lower() not in ("index", "readme"), path.name


def _entry(place: str) -> str:
    name = place.removesuffix(".md")
    return f"{TITLES[place]} <{name}>" if place in TITLES else name


def _toctree(caption: str, entries: list[str]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```", ""])


assert set(TITLES) <= set(ELSEWHERE.values())

"""A report in one HTML file that asks nothing of the network: text, tables, scores, figures, videos."""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_deploy.report.svg import inline_svg
from gantry_hardware.errors import GantryError
from gantry_hardware.files.whole_files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The browser itself is told to load nothing, so that a mistake here cannot turn into a request.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"


@dataclass(frozen=True)
class Score:
    """One measured number and what was asked of it."""

    name: str
    """Name of the measured quantity, in words."""
    value: float
    """The measurement."""
    limit: float | None = None
    """Threshold; None for a number without a verdict."""
    unit: str = ""
    """Unit of both, for example ``m/s``; ``%`` shows a share in percent."""
    above: bool = False
    """True where the value must reach the limit, False where it must not exceed it."""
    note: str = ""
    """Small print under the name."""

    @property
    def passed(self) -> bool | None:
        """The verdict; a value that is not a number fails; None without a limit."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.above else self.value <= self.limit

    def text(self, number: float) -> str:
        """``number`` in this score's unit; NaN is a value that was not measured."""
        if math.isnan(number):
            return "not measured"
        if self.unit == "%":
            return f"{100.0 * number:.3g} %"
        return f"{_number(number)} {self.unit}".rstrip()


class Report:
    """Collects parts from top to bottom and writes them as one HTML file. Every method returns the report.

    Args:
        title: Heading and browser tab.
        subtitle: A line under the heading.
    """

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title = title
        self._parts = [f"<header><h1>{_text(title)}</h1>"]
        if subtitle:
            self._parts.append(f'<p class="subtitle">{_text(subtitle)}</p>')
        self._parts.append("</header>")
        self._figures = 0

    def section(self, title: str) -> Report:
        """Start a section."""
        return self._add(f"<h2>{_text(title)}</h2>")

    def text(self, text: str) -> Report:
        """Paragraphs, separated by blank lines; words between backticks are set as code."""
        for paragraph in re.split(r"\n\s*\n", text.strip()):
            self._add(f"<p>{_text(paragraph)}</p>")
        return self

    def tiles(self, values: Mapping[str, str]) -> Report:
        """A few numbers to see at a glance: what it is -> value with unit."""
        tiles = (
            f'<div class="tile"><b>{_text(value)}</b><span>{_text(name)}</span></div>' for name, value in values.items()
        )
        return self._add(f'<div class="tiles">{"".join(tiles)}</div>')

    def table(self, rows: Iterable[Sequence[Any]], header: Sequence[str] = (), caption: str = "") -> Report:
        """A table; the first column names the row, numbers are set to the right."""
        cells = [list(row) for row in rows]
        numeric = [_is_number_column(cells, column) for column in range(max(map(len, cells), default=0))]
        lines = []
        for row in cells:
            first, rest = f'<th scope="row">{_text(str(row[0]))}</th>', []
            for column, cell in enumerate(row[1:], start=1):
                kind = ' class="number"' if numeric[column] else ""
                rest.append(f"<td{kind}>{_text(_cell(cell))}</td>")
            lines.append(f"<tr>{first}{''.join(rest)}</tr>")
        return self._add(_table(_head(header, numeric), lines, caption))

    def scores(self, rows: Iterable[Score], caption: str = "") -> Report:
        """Scores against their thresholds, each with its verdict."""
        lines = []
        for score in rows:
            limit = "" if score.limit is None else f"{'≥' if score.above else '≤'} {score.text(score.limit)}"
            word = {None: "", True: "pass", False: "fail"}[score.passed]
            mark = {"": "", "pass": "✓ pass", "fail": "✗ fail"}[word]
            note = f'<br><span class="subtitle">{_text(score.note)}</span>' if score.note else ""
            lines.append(
                f'<tr><th scope="row">{_text(score.name)}{note}</th><td class="number">{_text(score.text(score.value))}'
                f'</td><td class="number">{_text(limit)}</td><td class="verdict {word}">{mark}</td></tr>'
            )
        head = _head(("Score", "Measured", "Asked", "Verdict"), (False, True, True, False))
        return self._add(_table(head, lines, caption, " class=scores"))

    def figure(self, fig: Figure, caption: str) -> Report:
        """A matplotlib figure as vector graphics that follow the reader's light or dark colours."""
        self._figures += 1
        return self._figure(f'<div class="wide">{inline_svg(fig, f"f{self._figures}", caption)}</div>', caption)

    def image(self, png: bytes, caption: str) -> Report:
        """A PNG.

        Raises:
            GantryError: If the bytes are no PNG.
        """
        if not png.startswith(b"\x89PNG"):
            raise GantryError(f"The image '{caption}' starts with {png[:8]!r}, expected a PNG file.")
        return self._figure(f'<img alt="{_attribute(caption)}" src="{_data_url("image/png", png)}">', caption)

    def video(self, mp4_bytes: bytes, caption: str) -> Report:
        """An MP4, for example from :func:`~gantry_deploy.report.video.encode_mp4`; it plays muted and in a loop.

        Raises:
            GantryError: If the bytes are no MP4.
        """
        if mp4_bytes[4:8] != b"ftyp":
            raise GantryError(f"The video '{caption}' starts with {mp4_bytes[:8]!r}, expected an MP4 file.")
        source = _data_url("video/mp4", mp4_bytes)
        attributes = "controls autoplay muted loop playsinline"
        return self._figure(f'<video {attributes} aria-label="{_attribute(caption)}" src="{source}"></video>', caption)

    def html(self) -> str:
        """The whole file."""
        style = files("gantry_deploy.report").joinpath("style.css").read_text(encoding="utf-8")
        body = "\n".join(self._parts)
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            f"<title>{html.escape(self.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n"
            "</body>\n</html>\n"
        )

    def write(self, path: str | Path) -> Path:
        """Write the file and return its path.

        Raises:
            GantryError: If it cannot be written.
        """
        target = Path(path)
        try:
            write_whole(target, self.html().encode())
        except OSError as error:
            raise GantryError(f"Cannot write the report to '{target}': {error.strerror}.") from error
        return target

    def _figure(self, content: str, caption: str) -> Report:
        return self._add(f"<figure>{content}<figcaption>{_text(caption)}</figcaption></figure>")

    def _add(self, part: str) -> Report:
        self._parts.append(part)
        return self


def _table(head: str, lines: list[str], caption: str, attributes: str = "") -> str:
    words = f"<caption>{_text(caption)}</caption>" if caption else ""
    return f'<div class="card"><table{attributes}>{words}{head}<tbody>{"".join(lines)}</tbody></table></div>'


def _head(header: Sequence[str], numeric: Sequence[bool]) -> str:
    if not header:
        return ""
    kinds = [*numeric, *[False] * len(header)]
    cells = (
        f'<th scope="col"{" class=number" if kinds[column] else ""}>{_text(name)}</th>'
        for column, name in enumerate(header)
    )
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _is_number_column(rows: list[list[Any]], column: int) -> bool:
    cells = [row[column] for row in rows if column < len(row)]
    return column > 0 and all(isinstance(cell, (int, float)) for cell in cells)


def _cell(value: Any) -> str:
    return _number(value, 4) if isinstance(value, float) else str(value)


def _number(value: float, digits: int = 3) -> str:
    """A few significant digits, without powers of ten where a person would write none."""
    return f"{value:,.0f}".replace(",", "\u202f") if 10**digits <= abs(value) < 1e9 else f"{value:.{digits}g}"


def _text(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _attribute(text: str) -> str:
    return html.escape(text, quote=True)


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"

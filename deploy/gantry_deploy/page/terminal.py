"""The facts of a session on a terminal, over SSH as well; plain lines where the output is no terminal."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gantry_deploy.page.facts import Fact, SessionView, alarms_of, clock, share, view_of
from gantry_deploy.session.snapshot import SessionSnapshot
from gantry_deploy.session.states import SessionState

LINE_S = 10.0
"""Time between two plain lines, s."""
VIEW_HZ = 5.0
"""Rate of a terminal's picture."""
CLOSE_S = 1.0
"""Longest wait for a terminal that takes nothing, at the end."""
STALE_S = 2.0
"""Time without a snapshot after which the picture says so."""
LOG_LINES = 6

_TONES = {
    "policy": "bold white on blue",
    "person": "bold white on dark_orange3",
    "pause": "bold white on purple",
    "bad": "bold white on red",
    "quiet": "bold",
    "good": "green",
    "warn": "yellow",
}


class TerminalView:
    """Shows the newest snapshot, in a thread of its own: a terminal that takes nothing holds up no control loop.

    Args:
        console: Output; the standard output if None.
        notes: Lines that stay in sight, for example the page's link.
    """

    def __init__(self, console: Console | None = None, notes: Sequence[str] = ()) -> None:
        self._console, self._notes = console or Console(), tuple(notes)
        self._newest: SessionSnapshot | None = None
        self._heard_s = time.monotonic()
        self._stop = threading.Event()
        self._lines = PlainLines()
        run = self._run_live if self._console.is_terminal else self._run_lines
        self._thread = threading.Thread(target=run, name="gantry-terminal", daemon=True)

    def __call__(self, snapshot: SessionSnapshot) -> None:
        """Take a snapshot; never waits."""
        self._newest, self._heard_s = snapshot, time.monotonic()

    def start(self) -> TerminalView:
        """Begin to show."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Show the last snapshot and leave the terminal as it was."""
        self._stop.set()
        self._thread.join(CLOSE_S)

    def __enter__(self) -> TerminalView:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run_live(self) -> None:
        with Live(console=self._console, auto_refresh=False, transient=False, vertical_overflow="crop") as live:
            shown = False
            while not (shown and self._stop.is_set()):
                shown = self._stop.is_set()
                if self._newest is not None:
                    age_s = time.monotonic() - self._heard_s
                    live.update(picture(self._newest, self._console.height, age_s, self._notes), refresh=True)
                self._stop.wait(1.0 / VIEW_HZ)

    def _run_lines(self) -> None:
        shown = False
        while not (shown and self._stop.is_set()):
            shown = self._stop.is_set()
            newest = self._newest
            line = None if newest is None else self._lines.next(newest, shown)
            if line is not None:
                with contextlib.suppress(OSError, ValueError):  # The reader of a pipe has left.
                    self._console.print(line, soft_wrap=True, markup=False, highlight=False)
            self._stop.wait(1.0 / VIEW_HZ)


class PlainLines:
    """Lines for a log: one every few seconds, and one as soon as state, faults or connection change."""

    def __init__(self) -> None:
        self._told_s = float("-inf")
        self._told: tuple[object, ...] = ()
        self._last: SessionSnapshot | None = None

    def next(self, snapshot: SessionSnapshot, ends: bool = False) -> str | None:
        """The line of a snapshot; None if there is nothing new to say.

        Args:
            snapshot: The newest one.
            ends: Whether it is the last one, which is told in any case.
        """
        facts = (snapshot.state, snapshot.fault, snapshot.learner.connected, snapshot.advice != "")
        due = facts != self._told or abs(snapshot.time_s - self._told_s) >= LINE_S
        if not due and not (ends and snapshot is not self._last):
            return None
        self._told, self._told_s, self._last = facts, snapshot.time_s, snapshot
        view = view_of(snapshot)
        learner = " ".join(f"{fact.label.lower()} {fact.value}," for fact in view.learner[:3]).rstrip(",")
        parts = (
            f"{snapshot.time_s:8.1f} s  {view.headline}",
            view.detail,
            f"success {share(snapshot.success_rate)}, corrected {share(snapshot.intervention_rate)}, "
            f"person {clock(snapshot.person_s)}",
            learner,
            view.advice,
            *alarms_of(snapshot),
        )
        return " | ".join(part for part in parts if part)


def picture(
    snapshot: SessionSnapshot, height: int = 40, age_s: float = 0.0, notes: Sequence[str] = ()
) -> RenderableType:
    """The picture of a snapshot for a terminal of so many lines.

    Args:
        snapshot: The newest one.
        height: Lines of the terminal; what has no room is left out, the least urgent first.
        age_s: Time since the snapshot came, s.
        notes: Lines that stay in sight.
    """
    view = view_of(snapshot)
    old = age_s > STALE_S and snapshot.state != SessionState.CLOSED
    headline = f"No news for {clock(age_s)}" if old else view.headline
    head = Text(f" {headline} ", style=_TONES["bad" if old else view.tone], justify="left")
    parts: list[RenderableType] = [head, Text(f"{view.detail}   {view.about}".strip(), style="dim")]
    parts += [Text(note, style="dim") for note in notes]
    parts += [Text(f" {alarm} ", style=_TONES["bad"]) for alarm in view.alarms]
    if view.advice:
        parts.append(Text(f" {view.advice} ", style=_TONES["person"]))
    if view.disagreement is not None:
        parts.append(_bar(view.disagreement))
    columns = Table.grid(expand=True, padding=(0, 2))
    columns.add_column(ratio=1)
    columns.add_column(ratio=1)
    columns.add_row(_facts(view.scores), _facts(view.learner))
    parts.append(columns)
    room = height - 6 - len(view.alarms) - len(notes) - max(len(view.scores), len(view.learner))
    parts += _rest(view, room)
    return Group(*parts)


def _rest(view: SessionView, room: int) -> list[RenderableType]:
    """Log, keys, motion and joints, as far as there is room."""
    parts: list[RenderableType] = []
    if room > 3:
        lines = view.log[-min(LOG_LINES, room - 2) :]
        parts.append(Panel(Text("\n".join(lines) or "-"), title="events", title_align="left", border_style="dim"))
        room -= len(lines) + 2
    if view.axes and room > 1:
        parts.append(Text("  ".join(f"{name} {value:+.2f}" for name, value in view.axes.items())))
        room -= 1
    if view.joints and room > 2:
        parts.append(
            Text("  ".join(f"{fact.label} {fact.value}" for fact in view.joints), style="dim", overflow="ellipsis")
        )
        room -= 2
    if view.help and room > len(view.help):
        parts.append(Text("\n".join(view.help), style="dim"))
    return parts


def _facts(facts: tuple[Fact, ...]) -> Table:
    table = Table.grid(padding=(0, 2))
    for fact in facts:
        value = Text(fact.value, style=_TONES.get(fact.tone, "bold"))
        if fact.note:
            value.append(f"  {fact.note}", style="dim")
        table.add_row(Text(fact.label, style="dim"), value)
    return table


def _bar(disagreement: float) -> Text:
    """Disagreement from 0 to 4 times the usual one in 20 letters."""
    filled = round(5.0 * min(4.0, max(0.0, disagreement)))
    style = "red" if disagreement >= 2.0 else "yellow" if disagreement >= 1.5 else "blue"
    text = Text("critic's disagreement ", style="dim")
    text.append("█" * filled, style=style)
    text.append("░" * (20 - filled), style="dim")
    text.append(f" {disagreement:.1f} times the usual", style="bold")
    return text

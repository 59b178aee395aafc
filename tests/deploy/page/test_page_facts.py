"""Words of the page and the terminal: what is loud, and what both show."""

import contextlib
import io
import os
import pty
import threading
import time
from dataclasses import asdict

import pytest
from rich.console import Console

from gantry_deploy.page.facts import clock, view_of
from gantry_deploy.page.feed import HISTORY, Feed
from gantry_deploy.page.pictures import Pictures, as_file, media_type
from gantry_deploy.page.terminal import PlainLines, TerminalView, picture
from gantry_deploy.session.snapshot import LearnerFacts, SessionSnapshot
from gantry_deploy.session.states import SessionState, possible

SHA256 = "0123456789abcdef" * 4
FULL = SessionSnapshot(
    95.0, "CORRECTING", "person", "POLICY", "", possible(SessionState.CORRECTING), "yam", "yam-lift", "gamepad",
    ("A: success",), 6, 41, 6, 5, 2, 5 / 6, 0.25, 33.4, 1.0, 0.91, "Step in: it is stuck.", 2.5, 11, SHA256,
    ("front",), {"joint1": 0.5}, {"x": -0.25},
    LearnerFacts(True, 0.2, 15000, 88.0, 4100, 900, 12, SHA256[::-1], 7, "learning"), ("one", "two"),
)  # fmt: skip


def test_facts_in_words():
    view = view_of(FULL)
    assert (view.headline, view.tone, view.acts, view.alarms) == ("You act", "person", True, ())
    assert view.detail == "attempt 7 · step 41 · 1:35 min · POLICY"
    scores = {fact.label: fact.value for fact in view.scores}
    assert scores == {
        "Success": "83 %", "Corrected": "25 %", "Attempts": "6",
        "Your time": "33 s", "Reward": "1.00", "Classifier": "91 %",
    }  # fmt: skip
    learner = {fact.label: fact.value for fact in view.learner}
    assert learner["Acting weights"] == "v11 01234567"
    assert learner["Newest weights"] == "v12 fedcba98"
    assert learner["Not acknowledged"] == "7 steps"


@pytest.mark.parametrize("state", SessionState)
def test_every_state_has_words(state):
    view = view_of(SessionSnapshot(state=state.value))
    assert view.headline != state.value
    assert view.stopped == (state in (SessionState.STOPPED, SessionState.CLOSED))


def test_what_is_loud():
    lost = LearnerFacts(False, 75.0, waiting=812, text="no route\x1b[2J")
    view = view_of(SessionSnapshot(state="STOPPED", mode="DAMP", fault="joint 3 beyond its limit", learner=lost))
    assert view.alarms[0] == "Fault: joint 3 beyond its limit"
    assert "1:15 min ago; 812 steps wait here" in view.alarms[1]
    assert "\x1b" not in view.alarms[1]
    assert view.tone == "bad"
    assert view_of(SessionSnapshot(state="AUTONOMOUS")).alarms == ()  # A session without a learner.


def test_clock():
    assert [clock(value) for value in (0.0, 59.4, 61.0, 3723.0, float("nan"))] == [
        "0.0 s",
        "59 s",
        "1:01 min",
        "1:02:03 h",
        "-",
    ]


def test_long_sessions_keep_a_bounded_curve():
    feed = Feed(SessionSnapshot)
    for attempts in range(1, 4 * HISTORY):
        feed._encoded(SessionSnapshot(attempts=attempts, success_rate=0.5))
    kept = [attempts for attempts, _, _ in feed._history]
    assert HISTORY / 2 <= len(kept) <= HISTORY
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (1, 4 * HISTORY - 1)


def test_pictures_are_files(stage):
    assert media_type(as_file(stage.pixels)) in ("image/png", "image/jpeg")
    wide = as_file(stage.pixels.repeat(200, axis=1))
    assert wide is not None
    for wrong in (b"GIF89a", b"", stage.pixels[..., :2], stage.pixels.astype("float32"), stage.pixels[:0]):
        assert as_file(wrong) is None
    assert as_file(b"\xff\xd8\xff" + bytes(9 * 1024 * 1024)) is None


def test_camera_that_blocks_holds_up_one_request(stage):
    entered = threading.Event()

    def slow(camera):
        entered.set()
        stage.free.wait(60)
        return stage.pixels

    pictures = Pictures(slow)
    asking = threading.Thread(target=pictures.newest, args=("front",))
    asking.start()
    assert entered.wait(30)
    assert pictures.newest("front") is None
    stage.free.set()
    asking.join(30)
    assert pictures.newest("front") is not None


def text_of(snapshot, width=100, height=40, age_s=0.0):
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    with console.capture() as got:
        console.print(picture(snapshot, height, age_s))
    return got.get()


def test_terminal_shows_the_facts_of_the_page():
    text = text_of(FULL)
    view = view_of(FULL)
    for fact in (*view.scores, *view.learner):
        assert fact.label in text
        assert fact.value in text
    for line in (view.headline, view.detail, view.advice, *view.help, *view.log, "x -0.25", "joint1 0.500"):
        assert line in text
    assert set(asdict(view)) >= {"alarms", "possible", "cameras"}
    assert "No news for 9.0 s" in text_of(FULL, age_s=9.0)


def test_small_terminal_keeps_what_is_urgent():
    text = text_of(FULL, 80, 16)
    assert "You act" in text
    assert "Step in" in text
    assert text.count("\n") <= 17


def test_lines_where_there_is_no_terminal():
    out = io.StringIO()
    with TerminalView(Console(file=out, force_terminal=False)) as view:
        view(FULL)
    assert out.getvalue().count("\n") == 1
    assert "You act" in out.getvalue()
    lines = PlainLines()
    assert lines.next(FULL) is not None
    assert lines.next(FULL) is None
    assert "Fault: stuck" in lines.next(SessionSnapshot(96.0, "STOPPED", fault="stuck"))
    assert lines.next(SessionSnapshot(96.5, "STOPPED", fault="stuck")) is None
    assert lines.next(SessionSnapshot(107.0, "STOPPED", fault="stuck")) is not None


def test_real_terminal_and_one_that_takes_nothing():
    """A pseudo-terminal shows the picture; full, it holds up neither the caller nor the end."""
    main, side = pty.openpty()
    with os.fdopen(side, "w") as file:
        view = TerminalView(Console(file=file, force_terminal=True, width=90, height=30)).start()
        view(FULL)
        seen = b""
        while b"You act" not in seen:
            seen += os.read(main, 4096)
        until_s = time.monotonic() + 0.6
        while time.monotonic() < until_s:
            view(FULL)
            time.sleep(0.01)
        view.close()
        os.set_blocking(main, False)
        with contextlib.suppress(BlockingIOError):
            while os.read(main, 65536):
                pass
        view._thread.join(20)
        assert not view._thread.is_alive()
    os.close(main)

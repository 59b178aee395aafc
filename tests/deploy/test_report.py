"""The HTML report: self-contained, escaped, with verdicts; its figures and its video."""

import io
import re
import subprocess
import sys

import numpy as np
import pytest

from gantry_deploy.report import Report, Score, encode_mp4, figures, svg
from gantry_fixtures.training import needs
from gantry_hardware.errors import GantryError

T = np.arange(0, 2, 0.02)
NAMES = ["FL_hip_joint", "FL_thigh_joint", "FL_calf_joint", "FR_hip_joint"]


def all_figures():
    pytest.importorskip("matplotlib")
    wave = np.sin(2 * np.pi * T)
    columns = np.stack([wave] * 4, axis=1)
    return {
        "learning": figures.learning_curve(T, {"reward": wave, "error [m/s]": -wave}, limits={"error [m/s]": 0.15}),
        "velocity": figures.velocity_tracking(T, columns[:, :3], columns[:, :3] + 0.1),
        "joints": figures.joint_positions(T, columns, [-2] * 4, [2] * 4, NAMES, target_rad=columns),
        "contacts": figures.foot_contacts(T, columns > 0, ["FL", "FR", "RL", "RR"], window_s=1.0),
        "timing": figures.timing_histograms(np.full(99, 0.02), np.full(99, 4e-5), rate_hz=50.0),
        "no timing": figures.timing_histograms([], [], rate_hz=50.0),
    }


@pytest.fixture(scope="module")
def video():
    pytest.importorskip("av")
    frames = (np.full((91, 121, 3), (200, 30, 30), dtype=np.uint8) for _ in range(10))
    return encode_mp4(frames, 12.5)


def decode(mp4):
    import av

    with av.open(io.BytesIO(mp4)) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        meta = {"codec": context.name, "fps": float(stream.average_rate), "size": (context.width, context.height)}
        meta["pix_fmt"] = context.pix_fmt
        return meta, [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]


def test_video_plays_everywhere_and_shows_what_was_given(video):
    meta, frames = decode(video)
    assert (meta["codec"], meta["fps"], meta["size"]) == ("h264", 12.5, (120, 90))
    assert meta["pix_fmt"].startswith("yuv420p")
    assert len(frames) == 10
    np.testing.assert_allclose(frames[5].mean(axis=(0, 1)), (200, 30, 30), atol=6)
    assert video.index(b"moov") < video.index(b"mdat")


@needs("av")
@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], "at least one frame"),
        ([np.zeros((8, 8), np.uint8)], r"shape \(8, 8\), expected"),
        ([np.zeros((8, 8, 3), np.float32)], "Frame 0 is float32"),
        ([np.zeros((8, 8, 3), np.uint8), np.zeros((8, 6, 3), np.uint8)], r"Frame 1 is uint8 of shape \(8, 6, 3\)"),
    ],
)
def test_frames_that_make_no_video_are_refused(frames, message):
    with pytest.raises(GantryError, match=message):
        encode_mp4(frames, 25.0)


@needs("av")
@pytest.mark.parametrize("fps", [0.0, -1.0, 1e-4, float("inf"), float("nan")])
def test_frames_per_second_that_no_video_has_are_refused(fps):
    with pytest.raises(GantryError, match=r"expected 0\.01 to 1000"):
        encode_mp4([np.zeros((8, 8, 3), np.uint8)], fps)


def test_the_file_asks_nothing_of_the_network(video, tmp_path):
    report = Report("A <title>", "sub & title").section("Part").text("one `code`\n\ntwo").video(video, "a walk")
    for name, fig in all_figures().items():
        report.figure(fig, name)
    text = report.write(tmp_path / "report.html").read_text(encoding="utf-8")
    addresses = set(re.findall(r'(?:src|href)="([^"]{0,30})', text))
    assert {address[:5] for address in addresses} <= {"data:", *(a[:5] for a in addresses if a.startswith("#"))}
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "default-src 'none'" in text
    assert "<script" not in text


def test_text_is_escaped():
    text = Report("<b>", "x").text("1 < 2 `a&b`").table([["<td>", "<i>"]], caption='"').html()
    assert "<title>&lt;b&gt;</title>" in text
    assert "<p>1 &lt; 2 <code>a&amp;b</code></p>" in text
    assert "<td>&lt;i&gt;</td>" in text
    assert "<i>" not in text


def test_scores_carry_their_verdict():
    scores = [
        Score("error", 0.15, 0.15, "m/s"),
        Score("falls", 0.021, 0.02, "%"),
        Score("speed", 16_213.0, 16_000.0, "steps/s", above=True),
        Score("broken", float("nan"), 1.0),
        Score("distance", 3.0, unit="m"),
    ]
    assert [score.passed for score in scores] == [True, False, True, False, None]
    text = Report("r").scores(scores).html()
    rows = [re.sub(r"<[^>]+>", "|", row) for row in re.findall(r"<tr>(.*?)</tr>", text)[1:]]
    assert [re.sub(r"\|+", "|", row).strip("|") for row in rows] == [
        "error|0.15 m/s|≤ 0.15 m/s|✓ pass",
        "falls|2.1 %|≤ 2 %|✗ fail",
        "speed|16\u202f213 steps/s|≥ 16\u202f000 steps/s|✓ pass",
        "broken|not measured|≤ 1|✗ fail",
        "distance|3 m",
    ]


@pytest.mark.parametrize("name", ["learning", "velocity", "joints", "contacts", "timing", "no timing"])
def test_figures_follow_the_colour_scheme(name):
    text = svg.inline_svg(all_figures()[name], "f7", "what it shows")
    assert text.startswith("<svg ")
    assert text.endswith("</svg>")
    assert 'aria-label="what it shows"' in text
    assert not re.findall(r"#[0-9a-fA-F]{6}\b", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert all(identity.startswith("f7-") for identity in ids)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)


def test_equal_figures_are_equal_bytes():
    first, second = (svg.inline_svg(all_figures()["joints"], "f1", "x") for _ in range(2))
    assert first == second


@needs("matplotlib")
def test_figures_check_their_shapes():
    with pytest.raises(GantryError, match=r"measured has shape \(99, 3\), expected \(100, 3\)"):
        figures.velocity_tracking(T, np.zeros((100, 3)), np.zeros((99, 3)))
    with pytest.raises(GantryError, match=r"upper_rad has shape \(2,\), expected \(4,\)"):
        figures.joint_positions(T, np.zeros((100, 4)), [-1] * 4, [1, 1], NAMES)
    with pytest.raises(GantryError, match="at least one series"):
        figures.learning_curve(T, {})


def test_contact_spans_by_hand():
    t = np.arange(6) * 0.1
    spans = figures._spans(t, np.array([True, True, False, False, True, False]))
    np.testing.assert_allclose(spans, [(0.0, 0.2), (0.4, 0.1)])
    assert figures._spans(t, np.zeros(6, bool)) == []


def test_running_mean_by_hand():
    np.testing.assert_allclose(figures._running_mean(np.array([0.0, 3.0, 6.0, 0.0]), 1), [1.5, 3.0, 3.0, 3.0])


def test_wrong_bytes_and_places_are_refused(tmp_path):
    with pytest.raises(GantryError, match="expected an MP4 file"):
        Report("r").video(b"GIF89a...", "x")
    with pytest.raises(GantryError, match="expected a PNG file"):
        Report("r").image(b"GIF89a...", "x")
    with pytest.raises(GantryError, match="Cannot write the report"):
        Report("r").write(tmp_path / "nowhere" / "report.html")


def test_importing_the_report_does_not_import_matplotlib():
    code = "import sys, gantry_deploy.report.figures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

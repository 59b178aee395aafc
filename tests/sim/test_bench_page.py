"""One page of numbers: rows from results written by hand, the page, and a short part by the real commands."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from gantry_deploy.cli.main import main
from gantry_hardware.errors import GantryError
from gantry_sim.benchmarks.page_rows import Row, markdown_of, merged, missed_by, paired_row, rows_from
from gantry_sim.benchmarks.summary import (
    PARTS,
    corrections_rows,
    learning_rows,
    mapping_rows,
    measure,
    page_of,
    peer_rows,
    runtime_rows,
    simulation_rows,
)
from gantry_sim.benchmarks.summary_command import NAMES

SIMULATION = {
    "machine": {"mjlab": "1.6.0"},
    "repeats": 3,
    "results": [
        {
            "num_envs": 256,
            "env_steps_per_s": {
                "gantry": {"min": 4000.0, "median": 5000.0, "max": 6000.0},
                "mjlab": {"min": 190.0, "median": 200.0, "max": 210.0},
            },
            "ratio": {"min": 20.0, "median": 25.5, "max": 30.0},
        }
    ],
    "preset": {
        "task": "velocity-flat-go2",
        "num_envs": 1024,
        "training": {
            "collect_steps_per_s": {"min": 1.0, "median": 2.0, "max": 3.0},
            "train_steps_per_s": {"min": 0.5, "median": 1.0, "max": 1.5},
        },
    },
    "aims": {
        "ratio at 256 environments": {"value": 25.5, "aim": 25.0},
        "steps/s without learning": {"value": 2.0, "aim": 30000.0},
    },
}


def test_a_ratio_stands_beside_its_peer_with_its_spread():
    first, own_backend, alone, learning = simulation_rows(SIMULATION)
    assert (first.ratio_low, first.ratio, first.ratio_high) == (20.0, 25.5, 30.0)
    assert (first.peer, first.peer_value, first.aim_ratio) == ("mjlab 1.6.0 as it ships", 200.0, 25.0)
    assert (first.environments, alone.environments) == (256, 1024)
    assert (alone.value, alone.aim, alone.runs) == (2.0, 30000.0, 1)
    assert (alone.low, alone.high) == (None, None), "iterations of one run are no repeats"
    (once, *_) = simulation_rows({**SIMULATION, "repeats": 1})
    assert (once.value, once.low, once.high, once.runs) == (5000.0, None, None, 1)
    assert (learning.value, learning.aim) == (1.0, None)
    lines = markdown_of([first, own_backend, alone]).splitlines()[2:]
    assert lines[0] == (
        "| mjlab's unmodified Velocity-Flat-Go1, 256 environments | 5,000 [4,000, 6,000] steps/s (median of 3) "
        "| higher | mjlab 1.6.0 as it ships, 256 environments: 200 | 25.5 [20.0, 30.0] times better | 25 times better "
        "| met |"
    )
    assert lines[1].endswith("| 1.2 times better | not measured; mjlab 1.6.0 has none (mjlab #1180, #1187) |")
    assert lines[2].endswith("| 2 steps/s (one run) | higher |  |  | 30,000 steps/s | missed by 29,998 steps/s |")


def test_a_ratio_is_told_as_times_better_or_worse_whatever_the_direction():
    def ratio(better, ours, theirs):
        row = paired_row(Row("peers", "a", "s", better, None, peer="b", aim_ratio=2.0), ours, theirs)
        return markdown_of([row]).splitlines()[2].split(" | ")[4], missed_by(row)

    assert ratio("lower", [67.0], [670.0]) == ("10 times better (one run)", 0.0)
    assert ratio("lower", [1.0, 2.0, 4.0], [4.0, 4.0, 4.0]) == ("2 [1, 4] times better", 0.0)
    assert ratio("lower", [40.0], [10.0]) == ("4 times worse (one run)", 1.75)
    assert ratio("higher", [15.0, 10.0, 5.0], [10.0, 10.0, 10.0]) == ("1.0 [0.5, 1.5] times better", 1.0)
    assert ratio("higher", [5.0, 4.0, 2.0], [10.0, 10.0, 10.0]) == ("2.5 [2.0, 5.0] times worse", 1.6)


def test_the_distance_from_an_aim_has_the_sign_of_its_direction():
    slow, fast = Row("runtime", "a", "ms", "lower", 2.4, aim=2.0), Row("runtime", "a", "ms", "lower", 1.5, aim=2.0)
    assert missed_by(slow) == pytest.approx(0.4)
    assert missed_by(fast) == 0.0
    assert missed_by(Row("runtime", "a", "1/s", "higher", 1.5, aim=2.0)) == 0.5
    assert missed_by(Row("runtime", "a", "ms", "lower", None, aim=2.0)) is None
    assert missed_by(Row("runtime", "a", "ms", "lower", 1.0)) is None


def test_runs_of_a_part_become_one_row_with_their_spread():
    def run(value, peer_value, reached):
        row = paired_row(Row("runtime", "loop", "ms", "lower", None, peer="timer"), [value], [peer_value])
        return [row, Row("learning", "to 0.2", "s", "lower", 60.0)] if reached else [row]

    loop, reached = merged([run(1.0, 1.0, True), run(3.0, 1.0, True), run(4.0, 2.0, False)])
    assert (loop.low, loop.value, loop.high, loop.runs) == (1.0, 3.0, 4.0, 3)
    assert (loop.ratio_low, loop.ratio, loop.ratio_high) == (1.0, 2.0, 3.0)
    assert (reached.value, reached.runs, reached.note) == (60.0, 2, "in 2 of 3 runs")
    (alone,) = merged([run(1.0, 1.0, False)])
    assert (alone.runs, alone.low, alone.ratio_low) == (1, None, None)


def test_repeats_of_a_part_are_read_from_files_of_their_own(tmp_path):
    for name, millis in (("mapping", 2.0), ("mapping-2", 4.0)):
        frame = {"frame": {"p50_s": 1e-3 * millis, "p99_s": 1e-3 * millis}}
        told = {"frame": frame, "classical": {"frame": {"p50_s": 1e-3, "p99_s": 1e-3}}, "frame_aim_s": 5e-3}
        (tmp_path / f"{name}.json").write_text(json.dumps(told))
    middle, _ = measure(["mapping"], tmp_path, False, repeats=2)
    assert (middle.low, middle.value, middle.high) == pytest.approx((2.0, 3.0, 4.0))
    assert measure(["mapping"], tmp_path, False)[0].value == pytest.approx(2.0)
    del told["classical"]
    (tmp_path / "mapping.json").write_text(json.dumps(told))
    with pytest.raises(GantryError, match=r"mapping\.json: the result has no 'classical'.* Begin in a new folder"):
        measure(["mapping"], tmp_path, False)


def test_learned_is_the_first_row_below_the_error(tmp_path):
    rows = [(0.5, 10.0, 1000), (0.19, 20.0, 2000), (0.25, 30.0, 3000), (0.1, 40.0, 4000)]
    text = "\n".join(
        json.dumps({"kind": "train", "lin_vel_error_m_s": error, "wall_s": wall_s, "env_steps": steps})
        for error, wall_s, steps in rows
    )
    (tmp_path / "metrics.jsonl").write_text(text + "\n")
    reached, steps, whole = learning_rows({"run": str(tmp_path), "env_steps": 4000, "train_wall_s": 41.0})
    assert (reached.value, steps.value, whole.value) == (20.0, 2000, 41.0)
    assert (steps.unit, reached.environments) == ("steps", 1024)
    (tmp_path / "metrics.jsonl").write_text(text.splitlines()[0] + "\n")
    assert len(learning_rows({"run": str(tmp_path), "env_steps": 1000, "train_wall_s": 10.0})) == 1


def test_loops_stand_beside_the_bare_timer_of_their_rate():
    def timing(p99_s):
        return {"jitter": {"p99_s": p99_s}}

    rows = runtime_rows(
        {
            "compute": {"step": {"p50_s": 1e-4, "p99_s": 3e-4}},
            "aims": {"policy step p99": {"value": 0.3, "aim": 0.5}},
            "timers": [{"rate_hz": 50.0, "timing": timing(1e-4)}],
            "loops": [
                {"backend": "mock", "rate_hz": 50.0, "timing": timing(2e-4)},
                {"backend": "mujoco", "rate_hz": 50.0, "skipped": "no model"},
            ],
            "ros": [{"rate_hz": 200.0, "timing": timing(1e-3)}],
        }
    )
    assert [row.value for row in rows] == pytest.approx([0.1, 0.3, 0.2, 1.0])
    assert rows[1].aim == 0.5
    assert (rows[2].ratio, rows[2].note) == (pytest.approx(2.0), "no real-time priority")
    assert rows[3].ratio is None, "no timer was measured at that rate"


def test_frames_and_hand_overs_are_told_in_milliseconds():
    frame = {"frame": {"frame": {"p50_s": 2e-3, "p99_s": 3e-3}}, "frame_aim_s": 5e-3}
    frame["classical"] = {"frame": {"p50_s": 1e-3, "p99_s": 1e-3}}
    assert [(row.value, row.aim, row.ratio) for row in mapping_rows(frame)] == [
        (2.0, None, pytest.approx(2.0)),
        (3.0, 5.0, pytest.approx(3.0)),
    ]
    row = {"rate_hz": 10.0, "take_p50_s": 0.05, "take_p99_s": 0.1, "missed": 5}
    found = corrections_rows({"hand_over": {"a": row}})
    assert [(row.value, row.note) for row in found] == [
        (50.0, "5 that no command followed"),
        (100.0, "5 that no command followed"),
    ]


def test_the_page_names_hardware_and_what_is_not_measured(tmp_path):
    page = page_of([Row("simulation", "steps", "steps/s", "higher", 1.0)], {"processor": "a Xeon"}, list(NAMES), False)
    text = page.write(tmp_path / "page.html").read_text()
    assert "a Xeon" in text
    assert "UniLab" in text
    assert "elevation_mapping_cupy, which needs CUDA" in text
    assert "compare.py" in text
    assert tuple(PARTS) == NAMES


def test_peers_are_read_from_the_folder(tmp_path):
    assert peer_rows(tmp_path) == []
    row = Row("peers", "Go2, with learning", "steps/s", "higher", None, peer="another")
    row = paired_row(row, [600.0, 900.0, 1200.0], [300.0, 300.0, 300.0])
    (tmp_path / "peers.json").write_text(json.dumps({"another": [asdict(row)]}))
    assert peer_rows(tmp_path) == [row]
    page = page_of([row], {"processor": "a Xeon"}, [], False).write(tmp_path / "page.html").read_text()
    assert "another: 300" in page
    assert "3 [2, 4] times better" in page
    (tmp_path / "peers.json").write_text('{"another": [{"speed": 1}]}')
    with pytest.raises(GantryError, match=r"peers\.json' holds no rows of"):
        peer_rows(tmp_path)
    with pytest.raises(GantryError, match="expected 'higher' or 'lower'"):
        rows_from([{"part": "peers", "what": "a", "unit": "s", "better": "sooner", "value": 1.0}], "page.json")


@pytest.mark.slow
def test_a_short_part_by_the_real_commands(tmp_path, capsys):
    output = tmp_path / "bench"
    words = ["bench", "page", "--output", str(output), "--quick", "--parts", "runtime", "--json", str(tmp_path / "j")]
    assert main(words) == 0
    told = json.loads((tmp_path / "j").read_text())
    assert told["quick"] is True
    assert {"processor", "cores"} <= told["hardware"].keys()
    assert {"torch", "mujoco", "mjbatch", "mujoco-warp", "warp-lang"} <= told["versions"].keys()
    assert all(row["value"] > 0.0 for row in told["rows"])
    assert "policy step, median" in (output / "table.md").read_text()
    before = (output / "runtime.json").stat().st_mtime
    assert main(words) == 0
    assert (output / "runtime.json").stat().st_mtime == before, "what is measured is kept"
    assert main([*words, "--repeats", "0"]) == 2
    assert "--repeats is 0" in capsys.readouterr().err
    assert main(["bench", "page", "--output", str(output)]) == 2
    assert "holds quick measurements, not full ones" in capsys.readouterr().err
    assert main(["bench", "page", "--output", str(tmp_path), "--parts", "simulatoin"]) == 2
    assert "Did you mean 'simulation'?" in capsys.readouterr().err

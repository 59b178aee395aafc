"""The benchmark of sessions: every hand-over is followed by a command, and refusals name what exists."""

import pytest

from gantry_deploy.benchmarks.hand_over import measure_hand_overs
from gantry_deploy.cli.main import main


@pytest.mark.slow
def test_a_hand_over_is_seen_in_the_commands_of_a_robot_in_real_time():
    shares = []
    found = measure_hand_overs("pretrained:yam-pick-place", 3, seed=2, on_progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert found.rate_hz == 20.0
    assert min(len(found.take_s), len(found.give_s)) >= 3
    assert all(seconds > 0.0 for seconds in (*found.take_s, *found.give_s))
    assert found.summary()["take_p50_s"] <= found.summary()["take_p99_s"]


@pytest.mark.parametrize(
    ("words", "said"), [(("--parts", "handover"), "no part 'handover'"), (("--seconds", "1"), "10")]
)
def test_mistyped_options_are_refused(words, said, capsys):
    assert main(["bench", "corrections", *words]) == 2
    assert said in capsys.readouterr().err

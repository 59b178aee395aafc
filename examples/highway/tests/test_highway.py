"""Cars in the real highway-env, where it is installed, and the command without it."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec

import pytest

from gantry_deploy.cli.main import main
from gantry_fixtures.drive import drive_bundle, drive_contract_for
from gantry_hardware.backends.testing import check_backend
from gantry_hardware.robots import robot_spec
from gantry_sim.driving.external_sims.riding import ride

BMW = robot_spec("bmw_320i")
DT_S = 0.1


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Small tensors."""


@pytest.fixture(scope="module")
def pursuit(tmp_path_factory):
    """Pure pursuit of the route, at its speed limits; it sees nobody."""
    contract = drive_contract_for(BMW)
    seen = tuple(term for term in contract.observations if term.name != "lidar")
    contract = replace(contract, observations=seen, body=replace(contract.body, lidar=None))
    return drive_bundle(tmp_path_factory.mktemp("pursuit") / "bundle", contract)


def test_a_bundle_drives_highway_env_sim2sim(pursuit):
    pytest.importorskip("highway_env")
    from gantry_highway.bridge import race_track

    scene = race_track("bmw_320i", DT_S, length_m=100.0, others=0)
    done = ride(pursuit, scene)
    assert (done.end, done.completion) == ("finished", 1.0), done
    assert done.driven_m == pytest.approx(100.0, abs=1.5)
    assert done.lateral_rmse_m < 0.6


def test_highway_envs_car_turns_as_ours():
    pytest.importorskip("highway_env")
    from gantry_highway.bridge import race_track

    car = race_track("bmw_320i", DT_S, others=0).car
    for _ in range(20):
        car.advance(0.0, 4.0)
    begin = car.motion()
    car.advance(0.1, 4.0)
    now = car.motion()
    assert now.forward_m_s == pytest.approx(4.0, abs=0.01)
    assert (now.yaw_rad - begin.yaw_rad) / DT_S == pytest.approx(4.0 * math.tan(0.1) / BMW.car.wheelbase_m, rel=0.01)
    check_backend(race_track("bmw_320i", DT_S, others=0).car, rate_hz=10.0, max_age_s=0.01)


def test_the_command_is_found_by_its_entry_point_and_says_what_is_missing(capsys):
    if find_spec("highway_env") is not None:
        pytest.skip("highway-env is installed")
    assert main(["bench", "highway", "somewhere"]) == 2
    assert "highway-env is not installed; it comes with pip install -e examples/highway" in capsys.readouterr().err
    assert main(["bench", "highway", "somewhere", "--episodes", "0"]) == 2
    assert "--episodes and --metres take whole numbers above 0." in capsys.readouterr().err

"""Delay, lag, errors and limits between a command and what the car does."""

import math
from dataclasses import fields, replace

import pytest
import torch

from gantry_hardware.errors import GantryError
from gantry_hardware.model.cars import car_spec
from gantry_sim.driving.vehicle.actuation import Actuation, CarRandomization, limit_acceleration
from gantry_sim.driving.vehicle.car_params import CarParams

STEP_S = 0.02


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    pass


def params(count, **changes):
    return CarParams.from_spec(replace(car_spec("bmw_320i"), **changes), count, dtype=torch.float64)


def actuation(count, longest_delay_s=0.0, **numbers):
    """Five physics steps of 20 ms to a decision; ``numbers`` are those of the cars."""
    made = Actuation(count, 0.1, 5, longest_delay_s, "cpu", torch.float64)
    drawn = CarRandomization().draw(count, torch.Generator().manual_seed(0), torch.float64)
    drawn |= {name: torch.as_tensor(value, dtype=torch.float64).expand(count) for name, value in numbers.items()}
    made.reset(torch.arange(count), torch.zeros(count, dtype=torch.float64), drawn)
    return made


def drive(made, commands, cars, speed=5.0):
    """Steering angles and accelerations, (physics steps, N), of cars that take these commands, one per decision."""
    state = torch.zeros(len(cars.mass_kg), 5, dtype=torch.float64)
    state[:, 3] = speed
    angles, accelerations = [], []
    for steering, accel in commands:
        made.command(torch.full_like(state[:, 0], steering), torch.full_like(state[:, 0], accel))
        for substep in range(5):
            inputs = made.inputs(substep, state[:, 2], state[:, 3], cars)
            state[:, 2] += STEP_S * inputs[:, 0]
            angles.append(state[:, 2].clone())
            accelerations.append(inputs[:, 1])
    return torch.stack(angles), torch.stack(accelerations)


def test_steering_turns_at_its_speed_and_stops_at_its_end():
    """0.4 rad/s: 0.04 rad a decision; asked for 0.1 rad it arrives after 13 physics steps."""
    angles, _ = drive(actuation(1), [(0.1, 0.0)] * 4, params(1))
    assert angles[4].item() == pytest.approx(0.04)
    assert angles[11].item() == pytest.approx(0.096)
    assert angles[12].item() == pytest.approx(0.1)
    slow, _ = drive(actuation(1), [(9.0, 0.0)] * 30, params(1))
    assert slow[-1].item() == pytest.approx(1.066)


def test_steering_lags_by_its_time_constant():
    """Within the steering's speed the gap closes as exp(-t / tau)."""
    taus = torch.tensor([0.1, 0.3], dtype=torch.float64)
    cars = params(2, steering_rate_limit_rad_s=10.0)
    angles, _ = drive(actuation(2, steering_lag_s=taus), [(0.1, 0.0)] * 3, cars)
    torch.testing.assert_close(angles[14], 0.1 * (1.0 - torch.exp(-0.3 / taus)))


def test_gain_and_offset_bend_the_steering():
    made = actuation(1, steering_gain=1.1, steering_offset_rad=-0.02)
    angles, _ = drive(made, [(0.1, 0.0)] * 5, params(1))
    assert angles[-1].item() == pytest.approx(0.09)


def test_a_command_waits_as_many_physics_steps_as_its_delay():
    """0, 40, 60 and 140 ms: a command given at step 0 acts from step 0, 2, 3 and 7."""
    made = actuation(4, longest_delay_s=0.14, delay_s=[0.0, 0.04, 0.06, 0.14])
    _, accelerations = drive(made, [(0.0, 1.0), (0.0, 2.0), (0.0, 3.0)], params(4))
    for car, delay in enumerate((0, 2, 3, 7)):
        expected = [0.0] * delay + [1.0] * 5 + [2.0] * 5 + [3.0] * 5
        assert accelerations[:, car].tolist() == expected[:15]


def test_acceleration_lags_by_its_time_constant():
    made = actuation(1, acceleration_lag_s=0.2, acceleration_gain=0.5)
    _, accelerations = drive(made, [(0.0, 4.0)] * 2, params(1))
    assert accelerations[9].item() == pytest.approx(2.0 * (1.0 - math.exp(-0.2 / 0.2)))


@pytest.mark.parametrize(
    ("speed", "asked", "given"),
    [
        (5.0, 20.0, 11.5),  # the drive's limit
        (14.638, 20.0, 5.75),  # power: twice the switching speed leaves half of it
        (10.0, -20.0, -8.0),  # the brakes' limit
        (-5.0, 20.0, 8.0),  # brakes when rolling backwards
        (-5.0, -20.0, -11.5),  # drives backwards
        (0.0, -20.0, -11.5),
        (50.79, 5.0, 0.5),  # 0.01 m/s below the largest speed
        (-13.9, -5.0, 0.0),
        (55.0, 0.0, -8.0),  # too fast already: the brakes bring it back
    ],
)
def test_drive_and_brakes_have_their_limits(speed, asked, given):
    cars = params(1, brake_limit_m_s2=8.0)
    one = torch.ones(1, dtype=torch.float64)
    assert limit_acceleration(asked * one, speed * one, cars, STEP_S).item() == pytest.approx(given, abs=1e-9)


def test_draws_stay_in_their_ranges_and_repeat_with_their_seed():
    ranges = CarRandomization.usual()
    drawn, again = (ranges.draw(500, torch.Generator().manual_seed(3), torch.float32) for _ in range(2))
    for field in fields(ranges):
        low, high = getattr(ranges, field.name)
        values = drawn[field.name]
        assert low <= values.min()
        assert values.max() <= high
        assert values.max() - values.min() > 0.9 * (high - low)
        assert torch.equal(values, again[field.name])


def test_widening_one_range_leaves_the_other_draws_alone():
    narrow = CarRandomization(friction_scale=(0.5, 1.0))
    wide = replace(narrow, mass_scale=(0.5, 2.0))
    first, second = (cfg.draw(8, torch.Generator().manual_seed(1), torch.float32) for cfg in (narrow, wide))
    assert torch.equal(first["friction_scale"], second["friction_scale"])
    assert not torch.equal(first["mass_scale"], second["mass_scale"])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mass_scale", (1.2, 0.8), r"'mass_scale' is \(1.2, 0.8\), expected a finite range, low first, of numbers > 0"),
        ("steering_gain", (0.0, 1.0), "of numbers > 0"),
        ("delay_s", (-0.1, 0.1), "of numbers >= 0"),
        ("steering_offset_rad", (-math.inf, 0.0), "expected a finite range"),
    ],
)
def test_impossible_ranges_are_refused(name, value, message):
    with pytest.raises(GantryError, match=message):
        CarRandomization(**{name: value})

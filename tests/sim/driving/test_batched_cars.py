"""Cars in a batch against the laws of driving, alone and together."""

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.cars import car_spec
from gantry_sim.driving.vehicle.actuation import CarRandomization
from gantry_sim.driving.vehicle.cars import BatchedCars, CarsCfg
from gantry_sim.driving.vehicle.models import model_names

BMW, SMALL = car_spec("bmw_320i"), car_spec("f1tenth")


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    pass


def cars(spec=BMW, count=1, dtype=torch.float64, speed=0.0, steering=0.0, seed=0, **cfg):
    made = BatchedCars(spec, count, CarsCfg(**cfg), seed=seed, dtype=dtype)
    ones = torch.ones(made.num_cars, dtype=dtype)
    made.reset(torch.arange(made.num_cars), torch.zeros(made.num_cars, 3, dtype=dtype), speed * ones, steering * ones)
    return made


def drive(made, steering, accel, decisions):
    ones = torch.ones_like(made.speed_m_s)
    for _ in range(decisions):
        made.step(steering * ones, accel * ones)
    return made


@pytest.mark.parametrize("model", ["kinematic", "kinematic-cog"])
@pytest.mark.parametrize("speed", [4.0, -4.0])
def test_a_kinematic_car_drives_in_a_circle(model, speed):
    """The rear axle stays wheelbase / tan(steering) from a centre to its left; lateral acceleration is v^2 / r."""
    made = cars(model=model, speed=speed, steering=0.3)
    radius = BMW.wheelbase_m / math.tan(0.3)
    for _ in range(40):
        drive(made, 0.3, 0.0, 1)
        assert math.hypot(made.pose[0, 0], made.pose[0, 1] - radius) == pytest.approx(radius, rel=1e-4)
    assert made.yaw_rate_rad_s.item() == pytest.approx(speed / radius)
    assert made.accel_in_base_m_s2[0, 1].item() == pytest.approx(16.0 / radius, rel=2e-4)
    assert made.velocity_in_base_m_s.tolist() == [[pytest.approx(speed), 0.0]]


@pytest.mark.parametrize("model", model_names())
def test_brakes_stop_a_car_after_its_speed_squared_over_twice_the_deceleration(model):
    """From 12 m/s at 4 m/s^2: 18 m and 3 s, then it stands, straight and for good."""
    made = drive(cars(model=model, speed=12.0, reverse=False), 0.0, -4.0, 40)
    # Tyres of the drift model take a moment to build up force, brake with a torque, and pull to one side a little.
    assert made.pose[0, 0].item() == pytest.approx(18.0, rel=0.03 if model == "drift" else 2e-3)
    assert made.speed_m_s.item() == pytest.approx(0.0, abs=1e-3)
    assert made.pose[0, 1:].abs().max().item() < (0.02 if model == "drift" else 1e-9)
    assert made.accel_in_base_m_s2.abs().max().item() < 0.02


@pytest.mark.parametrize(("model", "near"), [("single-track", 1e-6), ("single-track-grip", 0.01)])
def test_an_understeering_car_turns_less_than_its_steering_says(model, near):
    """Steady state: yaw rate = v * steering / (wheelbase + K v^2), K = (1 / C_Sf - 1 / C_Sr) / (friction * g)."""
    made = drive(cars(SMALL, model=model, speed=4.0, steering=0.04), 0.04, 0.0, 30)
    gradient = (1.0 / 4.718 - 1.0 / 5.4562) / (1.0489 * 9.81)
    # The model's speed is that of the centre of gravity, and tyres that are turned brake a little.
    speed = made.state[0, 3].item()
    assert speed == pytest.approx(4.0, rel=5.0 * near + 1e-3)
    yaw_rate = speed * 0.04 / (0.3302 + gradient * speed**2)
    assert made.yaw_rate_rad_s.item() == pytest.approx(yaw_rate, rel=near)
    # The rear tyre carries front_axle_to_cog / wheelbase of the mass and of the lateral force alike.
    slip = 0.17145 * yaw_rate / speed - speed * yaw_rate / (1.0489 * 9.81 * 5.4562)
    assert made.slip_rad.item() == pytest.approx(slip, abs=0.06 * near)
    assert made.accel_in_base_m_s2[0, 1].item() == pytest.approx(speed * yaw_rate, rel=2e-3 + near)


def test_only_tyres_that_saturate_let_go():
    """A bend that asks for twice the grip: linear tyres give it, others at most friction * g."""
    models = ("single-track", "single-track-grip", "drift")
    held = [
        drive(cars(model=model, speed=20.0, substeps=10), 0.13, 0.0, 12).accel_in_base_m_s2[0, 1].item()
        for model in models
    ]
    assert held[0] > 14.0
    assert 8.0 < held[1] < 1.0489 * 9.81
    assert 8.0 < held[2] < 1.0489 * 9.81


def test_on_ice_a_car_brakes_and_turns_less():
    """Friction 0.2: at most 1.96 m/s^2 in sum, so that 10 m/s need 25.5 m to stop, and the bend is not held."""
    made = cars(replace(BMW, friction=0.2), model="single-track-grip", speed=10.0, reverse=False)
    assert drive(made, 0.0, -8.0, 60).pose[0, 0].item() == pytest.approx(100.0 / (2.0 * 0.2 * 9.81), rel=5e-3)
    turning = drive(cars(replace(BMW, friction=0.2), model="single-track-grip", speed=10.0), 0.2, 0.0, 15)
    assert 1.5 < turning.accel_in_base_m_s2[0, 1].item() < 1.97


def test_tyres_take_energy_out_of_a_sliding_car():
    """Any slide, with the wheels turned anywhere and nothing driving: energy falls in every step, long as it is."""
    made = BatchedCars(SMALL, 200, CarsCfg(model="single-track-grip", substeps=1), dtype=torch.float64)
    draw = torch.Generator().manual_seed(0)
    unit = torch.rand(200, 4, generator=draw, dtype=torch.float64) * 2.0 - 1.0
    made.state[:, 2], made.state[:, 3] = 0.4 * unit[:, 0], 10.0 * unit[:, 1]
    made.state[:, 5], made.state[:, 6] = 5.0 * unit[:, 2], 1.5 * unit[:, 3]

    def energy():
        return 0.5 * (3.74 * made.state[:, 3] ** 2 + 0.04712 * made.state[:, 5] ** 2)

    for _ in range(30):
        before = energy()
        made.step(made.steering_rad, torch.zeros(200, dtype=torch.float64))
        assert (energy() - before).max() < 1e-9


@pytest.mark.parametrize("model", ["single-track", "single-track-grip", "drift"])
def test_a_slow_car_moves_as_the_kinematic_one(model):
    """At walking pace and small steering; forwards and backwards, tyres settle at once."""
    for speed in (0.6, -0.6):
        slipping, rolling = (cars(model=kind, speed=speed, steering=0.1) for kind in (model, "kinematic"))
        drive(slipping, 0.1, 0.0, 30)
        drive(rolling, 0.1, 0.0, 30)
        torch.testing.assert_close(slipping.pose, rolling.pose, rtol=0.0, atol=0.02)
        torch.testing.assert_close(slipping.yaw_rate_rad_s, rolling.yaw_rate_rad_s, rtol=0.02, atol=0.0)


# The small car publishes no wheels, which the drift model needs.
@pytest.mark.parametrize(
    ("model", "spec"),
    [(model, spec) for model in model_names() for spec in (BMW, SMALL) if model != "drift" or spec is BMW],
    ids=lambda value: getattr(value, "name", value),
)
def test_no_speed_is_too_low_for_single_precision(model, spec):
    """From standstill through every switch and back, at full lock, forwards and backwards."""
    made = cars(spec, 64, torch.float32, model=model)
    speeds = torch.cat((torch.linspace(-0.3, 0.3, 61), torch.tensor([1e-30, -1e-30, 1e-7])))
    made.reset(torch.arange(64), torch.zeros(64, 3), speeds)
    for accel, decisions in ((0.0, 10), (1.0, 10), (-1.0, 20)):
        drive(made, spec.steering_limit_rad, accel, decisions)
        assert torch.isfinite(made.state).all()
        assert made.yaw_rate_rad_s.abs().max() < 3.0 * math.tan(spec.steering_limit_rad) / spec.wheelbase_m
    still = drive(cars(spec, dtype=torch.float32, model=model), spec.steering_limit_rad, 0.0, 20)
    assert still.yaw_rate_rad_s.item() == 0.0
    assert still.pose.abs().max().item() == 0.0


@pytest.mark.parametrize("model", model_names())
def test_cars_in_a_batch_do_not_know_of_each_other(model):
    """Different cars, starts and commands together, and each of them alone."""
    specs = [BMW, car_spec("ford_escort"), car_spec("vw_vanagon")]
    poses = torch.tensor([[0.0, 0.0, 0.0], [5.0, -3.0, 2.0], [1.0, 1.0, -3.0]], dtype=torch.float64)
    speeds, steering = torch.tensor([3.0, 12.0, -1.0]), torch.tensor([0.2, -0.05, 0.5], dtype=torch.float64)
    accel = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    together = BatchedCars(specs, cfg=CarsCfg(model=model), dtype=torch.float64)
    together.reset(torch.arange(3), poses, speeds)
    alone = [BatchedCars(spec, 1, CarsCfg(model=model), dtype=torch.float64) for spec in specs]
    for row, car in enumerate(alone):
        car.reset(torch.tensor([0]), poses[row : row + 1], speeds[row : row + 1])
    for _ in range(10):
        together.step(steering, accel)
        for row, car in enumerate(alone):
            car.step(steering[row : row + 1], accel[row : row + 1])
    torch.testing.assert_close(together.state, torch.cat([car.state for car in alone]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", model_names())
def test_single_precision_is_near_double(model):
    single, double = (
        drive(cars(dtype=dtype, model=model, speed=15.0), 0.04, -1.0, 30) for dtype in (torch.float32, torch.float64)
    )
    torch.testing.assert_close(single.pose, double.pose.float(), rtol=0.0, atol=5e-3)
    torch.testing.assert_close(single.velocity_in_base_m_s, double.velocity_in_base_m_s.float(), rtol=0.0, atol=5e-3)


def test_a_reset_touches_its_cars_alone():
    made = drive(cars(count=4, speed=5.0), 0.1, 0.0, 5)
    before = made.state.clone()
    made.reset(torch.tensor([2]), torch.tensor([[7.0, 8.0, 1.0]]), torch.tensor([3.0]))
    assert made.pose[2].tolist() == [7.0, 8.0, 1.0]
    assert (made.speed_m_s[2].item(), made.steering_rad[2].item()) == (3.0, 0.0)
    others = [0, 1, 3]
    assert torch.equal(made.state[others], before[others])


def test_drawn_cars_differ_in_what_was_drawn_and_drive_differently():
    ranges = CarRandomization(wheelbase_scale=(0.8, 1.2), friction_scale=(0.5, 1.0))
    made = cars(count=16, speed=5.0, model="single-track", randomization=ranges)
    share = made.params.rear_axle_to_cog_m / made.params.wheelbase_m
    torch.testing.assert_close(share, torch.full_like(share, BMW.rear_axle_to_cog_m / BMW.wheelbase_m))
    assert made.params.wheelbase_m.std() > 0.1
    assert made.params.mass_kg.std() == 0.0
    assert drive(made, 0.1, 0.0, 20).pose[:, 2].std() > 0.01
    again = cars(count=16, speed=5.0, model="single-track", randomization=ranges)
    assert torch.equal(made.params.friction, again.params.friction)
    other = cars(count=16, speed=5.0, model="single-track", randomization=ranges, seed=1)
    assert not torch.equal(made.params.friction, other.params.friction)


def test_a_saved_batch_goes_on_exactly(tmp_path):
    """Delays on their way, lags and the next draws included, through a file that holds tensors only."""
    settings = {"count": 5, "speed": 3.0, "model": "single-track", "randomization": CarRandomization.usual()}
    made = drive(cars(**settings), 0.2, 1.0, 3)
    torch.save(made.state_dict(), tmp_path / "cars.pt")
    loaded = cars(**settings, seed=9)
    loaded.load_state_dict(torch.load(tmp_path / "cars.pt", weights_only=True))
    assert torch.equal(loaded.pose, made.pose)
    for one in (made, loaded):
        drive(one, -0.3, -1.0, 3)
        one.reset(torch.tensor([1, 3]), torch.ones(2, 3), torch.ones(2))
        drive(one, 0.3, 2.0, 3)
    for name, value in made.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name]), name
    with pytest.raises(GantryError, match=r"'state' has shape \(5, 7\), expected \(4, 7\)"):
        cars(**(settings | {"count": 4})).load_state_dict(made.state_dict())


def test_impossible_batches_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'kinematic'"):
        CarsCfg(model="kinematics")
    with pytest.raises(GantryError, match="0 physics steps"):
        CarsCfg(substeps=0)
    with pytest.raises(GantryError, match="needs the wheels of a car, which f1tenth does not publish"):
        BatchedCars(SMALL, 2, CarsCfg(model="drift"))
    with pytest.raises(GantryError, match="2 car specs for 3 cars"):
        BatchedCars([BMW, SMALL], 3)


def test_a_car_without_reverse_stands_when_told_to_go_back():
    made = drive(cars(replace(BMW), speed=1.0, reverse=False), 0.0, -3.0, 10)
    assert made.speed_m_s.item() == pytest.approx(0.0, abs=1e-12)
    assert drive(cars(speed=1.0), 0.0, -3.0, 10).speed_m_s.item() == pytest.approx(-2.0)


def test_cars_need_no_physics_engine():
    heavy = ("mujoco", "mjlab", "warp")
    code = f"import sys, gantry_sim.driving.vehicle.cars; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

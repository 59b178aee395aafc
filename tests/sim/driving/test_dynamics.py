"""Equations of motion against the package that they come from, and against laws."""

import pytest
import torch

from gantry_hardware.model.cars import car_spec
from gantry_sim.driving.vehicle.car_params import CarParams
from gantry_sim.driving.vehicle.drift import tyre_force
from gantry_sim.driving.vehicle.models import car_model

SETS = {"ford_escort": 1, "bmw_320i": 2, "vw_vanagon": 3}
MODELS = {
    "kinematic": "vehicle_dynamics_ks",
    "kinematic-cog": "utils.vehicle_dynamics_ks_cog",
    "single-track": "vehicle_dynamics_st",
    "drift": "vehicle_dynamics_std",
}


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    pass


def doubles(name, count):
    return CarParams.from_spec(car_spec(name), count, dtype=torch.float64)


def limit_inputs(state, inputs, params):
    """Inputs (N, 2) as steering and drive allow them, sections 4 and 5 of the source."""
    steering, speed, (rate, accel) = state[:, 2], state[:, 3], inputs.unbind(-1)
    limit, rate_limit = params.steering_limit_rad, params.steering_rate_limit_rad_s
    at_stop = ((steering <= -limit) & (rate <= 0.0)) | ((steering >= limit) & (rate >= 0.0))
    rate = torch.where(at_stop, 0.0, torch.clamp(rate, -rate_limit, rate_limit))
    power = params.accel_limit_m_s2 * params.switch_speed_m_s / torch.maximum(speed, params.switch_speed_m_s)
    too_slow = (speed <= -params.reverse_limit_m_s) & (accel <= 0.0)
    too_fast = (speed >= params.speed_limit_m_s) & (accel >= 0.0)
    accel = torch.where(too_slow | too_fast, 0.0, torch.clamp(accel, -params.brake_limit_m_s2, power))
    return torch.stack((rate, accel), dim=-1)


def rk4(rates, state, inputs, params, step_s):
    """One step of the classical Runge-Kutta method with inputs held."""
    first = rates(state, inputs, params)
    second = rates(state + 0.5 * step_s * first, inputs, params)
    third = rates(state + 0.5 * step_s * second, inputs, params)
    fourth = rates(state + step_s * third, inputs, params)
    return state + step_s / 6.0 * (first + 2.0 * (second + third) + fourth)


def random_states(count, columns, steering_limit, slowest, fastest, seed=0):
    """States all over the range, with steering beyond its ends and speeds on both sides of the switches."""
    draw = torch.Generator().manual_seed(seed)
    unit = torch.rand(count, 9, generator=draw, dtype=torch.float64) * 2.0 - 1.0
    speed = slowest + (fastest - slowest) * 0.5 * (unit[:, 3] + 1.0)
    speed[: count // 4] = 0.3 * unit[: count // 4, 3]
    speed[:3] = torch.tensor([0.0, 0.05, -0.05], dtype=torch.float64)
    spin = speed.clamp(min=0.0) / 0.344 * (1.0 + 0.3 * unit[:, 7])
    spin[3:6] = -1.0
    scaled = [100.0 * unit[:, 0], 100.0 * unit[:, 1], 1.05 * steering_limit * unit[:, 2], speed, 3.0 * unit[:, 4]]
    scaled += [unit[:, 5], 0.3 * unit[:, 6], spin, spin * (1.0 + 0.2 * unit[:, 8])]
    inputs = torch.rand(count, 2, generator=draw, dtype=torch.float64) * 2.0 - 1.0
    return torch.stack(scaled[:columns], dim=-1), inputs * torch.tensor([0.6, 14.0], dtype=torch.float64)


@pytest.mark.parametrize("car", SETS)
@pytest.mark.parametrize("model", MODELS)
def test_derivatives_are_those_of_commonroad(model, car):
    """Random states and inputs beyond every limit; backwards tyres are ours, see ``single_track_rates``."""
    pytest.importorskip("vehiclemodels")
    module = __import__(f"vehiclemodels.{MODELS[model]}", fromlist=["x"])
    published = __import__("vehiclemodels.vehicle_parameters", fromlist=["x"]).setup_vehicle_parameters(SETS[car])
    oracle = getattr(module, MODELS[model].rpartition(".")[2])
    ours, params, spec = car_model(model), doubles(car, 400), car_spec(car)
    slowest = -0.0999 if model == "single-track" else -spec.reverse_limit_m_s - 1.0
    states, inputs = random_states(400, ours.num_states, spec.steering_limit_rad, slowest, spec.speed_limit_m_s + 1.0)
    if model == "single-track":
        states[:, 3] = states[:, 3].clamp(min=slowest)
    rows = [oracle(list(x), list(u), published) for x, u in zip(states.tolist(), inputs.tolist(), strict=True)]
    expected = torch.tensor(rows, dtype=torch.float64)
    found = ours.rates(states, limit_inputs(states, inputs, params), params)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_the_single_track_model_gives_the_published_test_vector():
    """The state, input and derivative that CommonRoad's own unit test states for the BMW."""
    state = [2.0233348142065677, 0.0041907137716636, 0.0197545248559617, 15.7216236334290116]
    state += [0.0025857914776859, 0.0529001056654038, 0.0033012170610298]
    expected = [15.7213512030862397, 0.0925527979719355, 0.15, 5.3536773276413925]
    expected += [0.0529001056654038, 0.6435589397748606, 0.0313297971641291]
    params, state = doubles("bmw_320i", 1), torch.tensor([state], dtype=torch.float64)
    inputs = limit_inputs(state, torch.tensor([[0.15, 0.63 * 9.81]], dtype=torch.float64), params)
    found = car_model("single-track").rates(state, inputs, params)
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float64), rtol=0.0, atol=1e-13)


def test_tyres_push_back_in_reverse_as_well():
    """A car that slides to its left is pushed to the right, whichever way it drives; so its slip decays."""
    params = doubles("bmw_320i", 2)
    state = torch.zeros(2, 7, dtype=torch.float64)
    state[:, 3], state[:, 5] = torch.tensor([5.0, -5.0]), 0.3
    rates = car_model("single-track").rates(state, torch.zeros(2, 2, dtype=torch.float64), params)
    assert rates[:, 5].max() < 0.0


def after(step, state, seconds, step_s):
    for _ in range(round(seconds / step_s)):
        state = step(state, step_s)
    return state


def lane_change(model, method, step_s):
    """Its first 0.4 s at 15 m/s: state of the BMW."""
    params, model = doubles("bmw_320i", 1), car_model(model)
    start = torch.tensor([[0.0, 0.0, 0.0, 15.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    inputs = torch.tensor([[0.1, -1.0]], dtype=torch.float64)
    if method == "rk4":
        return after(lambda x, h: rk4(model.rates, x, inputs, params, h), start, 0.4, step_s)
    return after(lambda x, h: model.advance(x, inputs, params, h), start, 0.4, step_s)


def test_runge_kutta_is_of_fourth_order():
    truth = lane_change("single-track", "rk4", 0.0025)
    coarse, fine = ((lane_change("single-track", "rk4", step) - truth).norm() for step in (0.04, 0.02))
    assert 12.0 < coarse / fine < 24.0


@pytest.mark.parametrize("model", ["single-track", "single-track-grip"])
def test_the_implicit_step_converges_to_the_same_motion(model):
    """First order in yaw rate and slip: half of the step leaves half of the error; at 20 ms that is centimetres."""
    truth = lane_change(model, "rk4", 0.005)
    coarse, fine = ((lane_change(model, "implicit", step) - truth)[0] for step in (0.02, 0.01))
    assert coarse[:2].norm() < 0.05
    assert 1.7 < coarse.norm() / fine.norm() < 2.3


def test_tyres_with_grip_are_linear_ones_while_angles_are_small():
    params, inputs = doubles("f1tenth", 50), torch.zeros(50, 2, dtype=torch.float64)
    states, _ = random_states(50, 7, 0.01, 1.0, 10.0)
    states[:, 3] = states[:, 3].abs() + 1.0
    states[:, 5:] *= 0.01
    found, linear = (car_model(name).rates(states, inputs, params) for name in ("single-track-grip", "single-track"))
    # All but the speed, which the force of a turned wheel lowers.
    columns = [0, 1, 2, 4, 5, 6]
    torch.testing.assert_close(found[:, columns], linear[:, columns], rtol=0.02, atol=2e-3)


def test_the_kinematic_step_drives_the_circle_of_its_steering():
    """Radius = wheelbase / tan(steering); the centre lies to the left of the rear axle."""
    params, steering = doubles("vw_vanagon", 3), torch.tensor([0.1, 0.5, -0.8], dtype=torch.float64)
    radius = params.wheelbase_m / torch.tan(steering)
    state = torch.zeros(3, 5, dtype=torch.float64)
    state[:, 2], state[:, 3] = steering, 6.0
    still = torch.zeros(3, 2, dtype=torch.float64)
    state = after(lambda x, h: car_model("kinematic").advance(x, still, params, h), state, 3.0, 0.02)
    angle = 18.0 / radius
    torch.testing.assert_close(state[:, 0], radius * torch.sin(angle), rtol=2e-3, atol=0.0)
    torch.testing.assert_close(state[:, 1], radius * (1.0 - torch.cos(angle)), rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(state[:, 4], angle, rtol=1e-9, atol=0.0)


def test_the_drift_step_follows_a_fine_reference():
    """Braking into a bend; the reference takes 1000 steps a second, the implicit one makes do with 100."""
    params, model = doubles("bmw_320i", 1), car_model("drift")
    state = torch.tensor([[0.0, 0.0, 0.0, 20.0, 0.0, 0.0, 0.0, 20.0 / 0.344, 20.0 / 0.344]], dtype=torch.float64)
    inputs = torch.tensor([[0.1, -3.0]], dtype=torch.float64)
    truth = after(lambda x, h: rk4(model.rates, x, inputs, params, h), state, 0.6, 0.001)
    found = after(lambda x, h: model.advance(x, inputs, params, h), state, 0.6, 0.01)
    assert (found - truth)[0, :2].norm() < 0.05
    torch.testing.assert_close(found[0, 2:7], truth[0, 2:7], rtol=0.03, atol=0.005)


def test_tyres_of_the_drift_model_hold_no_more_than_their_friction():
    """Over all slips the force stays within friction times load, and a locked wheel that slides straight brakes."""
    slip, angle = torch.meshgrid(torch.linspace(-1, 1, 41), torch.linspace(-1.5, 1.5, 41), indexing="ij")
    load = torch.full_like(slip, 3000.0)
    along, across = tyre_force(slip, angle, load, torch.tensor(1.0489))
    assert torch.hypot(along / 1.1739, across / 1.0489).max() < 1.15 * 3000.0
    locked, _ = tyre_force(torch.ones(1), torch.zeros(1), load[0, :1], torch.tensor([1.0489]))
    assert -1.1739 * 3000.0 < locked.item() < -0.5 * 3000.0
    icy, _ = tyre_force(torch.ones(1), torch.zeros(1), load[0, :1], torch.tensor([0.3]))
    assert locked.item() < 2.5 * icy.item()

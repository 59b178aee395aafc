"""The thread engine means the same as mjbatch's batch: live arrays, pending writes, resets, derived constants."""

import os

import mujoco
import numpy as np
import pytest

from gantry_hardware.errors import GantryError
from gantry_sim.physics.engine import available_engines, make_engine
from gantry_sim.physics.threads import ThreadBatch

SCENE = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <geom type="plane" size="0 0 .01"/>
    <body name="base" pos="0 0 1">
      <freejoint/>
      <geom type="box" size=".1 .1 .1" mass="1.3"/>
      <body pos="0 0 .2">
        <joint name="arm" axis="0 1 0" damping=".1"/>
        <geom type="sphere" size=".05" mass=".3" pos=".1 0 0"/>
      </body>
    </body>
    <body name="target" mocap="true" pos="1 2 3"/>
  </worldbody>
  <actuator><motor joint="arm"/></actuator>
  <sensor><gyro site="imu"/></sensor>
</mujoco>
""".replace('<geom type="box"', '<site name="imu"/><geom type="box"')
FIELDS = ("time", "qpos", "qvel", "ctrl", "xfrc_applied", "qacc_warmstart", "mocap_pos", "xpos", "qacc", "sensordata")


@pytest.fixture
def model():
    return mujoco.MjModel.from_xml_string(SCENE)


@pytest.fixture
def pair(model):
    """The thread engine and mjbatch, side by side."""
    pytest.importorskip("mjbatch")
    return [make_engine(model, 5, 2, name) for name in ("threads", "mjbatch")]


def bound(engine, dtype=np.float32):
    return {name: engine.bind(name, dtype if name != "time" else None) for name in FIELDS}


def assert_same(pair, arrays):
    for name in FIELDS:
        np.testing.assert_array_equal(*(array[name] for array in arrays), err_msg=name)


def test_steps_resets_and_subsets_are_those_of_mjbatch(pair):
    arrays = [bound(engine) for engine in pair]
    random = np.random.default_rng(0)
    for engine in pair:
        engine.reset()
    for round_ in range(12):
        ctrl, push = random.normal(size=(5, 1)), random.normal(size=(5, 3))
        for engine, array in zip(pair, arrays, strict=True):
            array["ctrl"][:] = ctrl
            array["xfrc_applied"][:, 1, :3] = push
            if round_ % 4 == 3:
                array["qvel"][2, 0] = 3.0
                engine.reset(np.array([1, 2]))  # the write to row 2 survives, in both
            if round_ % 3 == 2:
                engine.step(np.array([True, False, True, False, True]))
                engine.forward(np.array([0, 3]))
            else:
                engine.step(None, 4)
        assert_same(pair, arrays)
    assert np.ptp(arrays[0]["qpos"][:, 6]) > 0  # the simulations did different things


def test_randomised_models_are_those_of_mjbatch(pair):
    random = np.random.default_rng(1)
    factors = random.uniform(0.5, 2.0, size=(5, 1))
    gravity = random.uniform(-12.0, -6.0, size=5)
    arrays = [bound(engine) for engine in pair]
    for engine in pair:
        engine.expand("body_mass")[:] *= factors
        engine.expand("dof_damping")[:] *= factors
        engine.expand("gravity")[:, 2] = gravity
        engine.expand("timestep")[3] = 0.002
        engine.set_const()
        engine.reset()
        engine.step(None, 50)
    assert_same(pair, arrays)
    for name in ("body_subtreemass", "dof_invweight0", "body_invweight0", "actuator_acc0"):
        ours, theirs = (engine.expand(name) for engine in pair)
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    np.testing.assert_allclose(pair[0].expand("body_subtreemass")[:, 1], 1.6 * factors[:, 0])
    np.testing.assert_allclose(arrays[0]["time"], [0.25, 0.25, 0.25, 0.1, 0.25])


def test_the_number_of_threads_can_be_set(model, monkeypatch):
    monkeypatch.setenv("GANTRY_PHYSICS_THREADS", "3")
    assert ThreadBatch(model, 8).num_threads == 3
    assert ThreadBatch(model, 8, 2).num_threads == 2, "what is asked for in the code wins"
    for wrong in ("0", "-1", "2.5", "all"):
        monkeypatch.setenv("GANTRY_PHYSICS_THREADS", wrong)
        with pytest.raises(GantryError, match=f"GANTRY_PHYSICS_THREADS is '{wrong}', expected a number of threads"):
            ThreadBatch(model, 8)


def test_processes_of_one_machine_share_its_cores(model, monkeypatch):
    monkeypatch.delenv("GANTRY_PHYSICS_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    for count, threads in (("", 6), ("1", 6), ("2", 3), ("4", 1), ("8", 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", count)
        assert ThreadBatch(model, 8).num_threads == threads
    monkeypatch.setenv("GANTRY_PHYSICS_THREADS", "5")
    assert ThreadBatch(model, 8).num_threads == 5, "what is set is that of each process"
    monkeypatch.delenv("GANTRY_PHYSICS_THREADS")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "two")
    with pytest.raises(GantryError, match="LOCAL_WORLD_SIZE is 'two', expected a whole number"):
        ThreadBatch(model, 8)


def test_float32_views_do_not_round_the_state(model):
    """What the user leaves alone keeps MuJoCo's float64: stepping once at a time equals stepping all at once."""
    engine, plain = ThreadBatch(model, 2, 1), mujoco.MjData(model)
    engine.bind("qpos", np.float32)
    engine.bind("qvel", np.float32)
    for _ in range(20):
        engine.step()
    mujoco.mj_step(model, plain, 20)
    state = np.zeros(engine.nstate)
    mujoco.mj_getState(model, plain, state, int(mujoco.mjtState.mjSTATE_INTEGRATION))
    np.testing.assert_array_equal(engine._state[1], state)


def test_arrays_stay_where_they_are(model):
    engine = ThreadBatch(model, 3)
    qpos, xpos, mass = engine.bind("qpos", np.float32), engine.bind("xpos"), engine.expand("body_mass")
    addresses = [array.ctypes.data for array in (qpos, xpos, mass)]
    engine.reset()
    mass *= 2
    engine.set_const()
    engine.step()
    again = [engine.bind("qpos", np.float32), engine.bind("xpos"), engine.expand("body_mass")]
    assert [array.ctypes.data for array in again] == addresses


@pytest.mark.parametrize("name", ["contact", "efc_force", "nefc", "no_such_field"])
def test_fields_without_a_fixed_size_are_refused(model, name):
    with pytest.raises(ValueError, match=name):
        ThreadBatch(model, 2).bind(name)


def test_a_second_dtype_is_refused(model):
    engine = ThreadBatch(model, 2)
    engine.bind("qpos", np.float32)
    engine.expand("body_mass", np.float32)
    with pytest.raises(ValueError, match="qpos is already bound with another dtype"):
        engine.bind("qpos")
    with pytest.raises(ValueError, match="body_mass is already bound"):
        engine.expand("body_mass", np.float64)


@pytest.mark.parametrize("ids", [[2, 1], [0, 0], [5], [-1]])
def test_unsorted_repeated_or_unknown_ids_are_refused(model, ids):
    with pytest.raises(ValueError, match="sorted, unique and in range"):
        ThreadBatch(model, 3).step(np.array(ids))


def test_an_error_in_one_simulation_leaves_it_as_it_was_and_names_it(model):
    engine = ThreadBatch(model, 3, 2)
    time = engine.bind("time")

    def fail_on_second(model, data):
        if data.mocap_pos[0, 0] == 7.0:
            raise mujoco.FatalError("out of something")
        mujoco.mj_step(model, data)

    engine.bind("mocap_pos")[1, 0, 0] = 7.0
    with pytest.raises(RuntimeError, match="simulation 1: out of something"):
        engine._call(None, fail_on_second)
    np.testing.assert_allclose(time, [0.005, 0.0, 0.005])


def test_broken_numbers_are_counted_and_stay_in_their_simulation(pair, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log into the working directory
    for engine in pair:
        warnings, qpos = engine.bind("warning"), engine.bind("qpos", np.float32)
        engine.reset()
        qpos[1, 0] = np.nan
        engine.step()
        assert np.isfinite(qpos).all()
        assert warnings[:, int(mujoco.mjtWarning.mjWARN_BADQPOS), 1].tolist() == [0, 1, 0, 0, 0]
        engine.reset(np.array([1]))
        assert not warnings.any()


def test_threads_are_always_available():
    assert available_engines()[-1] == "threads"

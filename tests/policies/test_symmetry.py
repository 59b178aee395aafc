"""Left-right symmetry: the maps against hand-made ones, and against physics, which knows nothing of them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from gantry_deploy.contract.policy_contract import MapWindow, ObservationTerm
from gantry_deploy.observations.mirrors import MirrorMap, mirror_action, mirror_joints, mirror_names, mirror_window
from gantry_deploy.testing.legs import map_contract_for
from gantry_fixtures.footsteps import stepping_contract
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_policies.on_policy.symmetry import RandomMirror, mirror_actor
from gantry_sim.process.suppress_output import quietly
from gantry_sim.tasks.locomotion.ground import SCAN_SENSOR
from gantry_sim.tasks.locomotion.machine.ranges import MachineCfg
from gantry_sim.tasks.registry import find_task, task_names


def apply(mirror, values):
    return values[..., list(mirror.source)] * torch.tensor(mirror.sign)


FOURS = {
    "Unitree": ("FL_hip_joint", "FR_hip_joint", "RL_hip_joint", "RR_hip_joint"),
    "ANYmal": ("LF_HAA", "RF_HAA", "LH_HAA", "RH_HAA"),
    "Spot": ("fl_hx", "fr_hx", "hl_hx", "hr_hx"),
    "with dots": ("fl.hx", "fr.hx", "hl.hx", "hr.hx"),
    "side first": ("LF_haa", "RF_haa", "LR_haa", "RR_haa"),
    "in the middle": ("leg_FL_roll", "leg_FR_roll", "leg_RL_roll", "leg_RR_roll"),
    "words": ("front_left_hip", "front_right_hip", "rear_left_hip", "rear_right_hip"),
}
TWOS = {
    "left and right": ("left_hip_roll_joint", "right_hip_roll_joint"),
    "last": ("hip_roll_L", "hip_roll_R"),
    "last, small": ("hip_roll_l", "hip_roll_r"),
    "first": ("l_hip_yaw", "r_hip_yaw"),
    "first, capital": ("L_hip_yaw", "R_hip_yaw"),
    "in the middle": ("leg_left_roll_joint", "leg_right_roll_joint"),
    "capitals": ("LEFT_HIP_YAW", "RIGHT_HIP_YAW"),
    "no separator": ("LHipYaw", "RHipYaw"),
    "capitalised": ("LeftHipYaw", "RightHipYaw"),
    "told twice": ("left_leg_roll_l", "right_leg_roll_r"),
}


@pytest.mark.parametrize("names", [*FOURS.values(), *TWOS.values()], ids=[*FOURS, *TWOS])
def test_sides_are_told_by_every_common_way_of_naming(names):
    """Neighbours are each other's images; every joint here turns about x or z, so its angle changes sign."""
    expected = tuple(place + 1 if place % 2 == 0 else place - 1 for place in range(len(names)))
    assert mirror_joints(names) == MirrorMap(expected, (-1.0,) * len(names))
    turned = names[::-1]
    assert mirror_joints(turned).source == expected


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (("left_knee", "right_knee", "waist_yaw"), r"No mirrored part is known for 'waist_yaw' among .*central_joints"),
        (("hip_yaw_1", "hip_yaw_2"), "known for 'hip_yaw_1', 'hip_yaw_2' among hip_yaw_1, hip_yaw_2"),
        (("FL_knee", "FR_knee", "RL_knee"), "known for 'RL_knee'"),
        (("left_knee", "right_knees"), "known for 'left_knee', 'right_knees'"),
        (("LR_knee", "RR_knee", "RL_knee", "LL_knee"), "'RR_knee' .either LR_knee or RL_knee."),
        (("joint1", "joint2"), "learner.mirror=none turns mirroring off"),
    ],
)
def test_joints_of_unknown_names_are_no_centre(names, match):
    with pytest.raises(GantryError, match=match):
        mirror_joints(names)


def test_a_joint_whose_axis_the_name_does_not_tell_is_refused():
    with pytest.raises(GantryError, match=r"Whether the joint 'L_joint' changes its sign .*learner\.mirror=none"):
        mirror_joints(("L_joint", "R_joint"))
    assert mirror_joints(("LF_KFE", "RF_KFE")).sign == (1.0, 1.0)


def test_central_joints_are_declared_and_exist():
    assert mirror_joints(("left_knee", "waist_yaw", "right_knee"), ("waist_yaw",)) == MirrorMap((2, 1, 0), (1, -1, 1))
    with pytest.raises(GantryError, match="'waist' is declared central, but is none of left_knee"):
        mirror_joints(("left_knee", "right_knee"), ("waist",))
    with pytest.raises(GantryError, match="Robot 'go2': 'waist' is declared central"):
        replace(robot_spec("go2"), central_joints=("waist",))


def test_a_robot_whose_names_tell_nothing_is_refused_with_its_contract():
    """Half of every minibatch would be wrong: velocities mirrored, joints not."""
    task = find_task("velocity-flat-go2")
    contract = task.contract(task.preset("cpu").env)
    strange = replace(contract, robot="mydog", joint_names=tuple(f"joint{number}" for number in range(12)))
    for mirror in (mirror_action, mirror_actor):
        with pytest.raises(GantryError, match="No mirrored part is known for 'joint0'"):
            mirror(strange)


def test_joints_of_a_quadruped_by_hand():
    names = robot_spec("go2").joint_names
    legs = {"FR": 0, "FL": 3, "RR": 6, "RL": 9}
    assert [names[start] for start in legs.values()] == [f"{leg}_hip_joint" for leg in legs]
    values = torch.arange(1.0, 13.0)
    expected = torch.tensor([-4.0, 5.0, 6.0, -1.0, 2.0, 3.0, -10.0, 11.0, 12.0, -7.0, 8.0, 9.0])
    assert torch.equal(apply(mirror_joints(names), values), expected)


def test_joints_of_a_humanoid_by_hand():
    names = (
        "left_hip_pitch_joint",
        "left_hip_roll_joint",
        "right_hip_pitch_joint",
        "right_hip_roll_joint",
        "waist_yaw",
    )
    mirrored = apply(mirror_joints(names, ("waist_yaw",)), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert mirrored.tolist() == [3.0, -4.0, 1.0, -2.0, -5.0]


def test_a_part_without_a_counterpart_is_refused():
    with pytest.raises(GantryError, match=r"No mirrored part is known for 'FL' among FL, RL, RR"):
        mirror_names(("FL", "RL", "RR"), (1.0, 1.0, 1.0))


def test_observations_whose_image_is_unknown_are_refused():
    task = find_task("velocity-flat-go2")
    contract = task.contract(task.preset("cpu").env)
    strange = replace(contract, observations=(ObservationTerm("ee_pos", 3),))
    with pytest.raises(GantryError, match="observation 'ee_pos' of 3 numbers"):
        mirror_actor(strange)


def test_a_history_is_mirrored_frame_by_frame():
    task = find_task("velocity-flat-go2")
    contract = task.contract(task.preset("cpu").env)
    stacked = replace(contract, observations=(ObservationTerm("joint_pos", 12, history=3),))
    values = torch.randn(2, 3, 12)
    expected = apply(mirror_joints(contract.joint_names), values).flatten(1)
    assert torch.equal(apply(mirror_actor(stacked), values.flatten(1)), expected)


def test_a_map_window_is_mirrored_by_hand():
    """Two rows ahead, three columns to the left, two channels: sides swap, values and rows stay."""
    window = MapWindow(2, 3, 0.1, 0.5, 0.0, ("elevation", "uncertainty"))
    cells = torch.arange(12.0)
    assert apply(mirror_window(window), cells).tolist() == [4, 5, 2, 3, 0, 1, 10, 11, 8, 9, 6, 7]
    with pytest.raises(GantryError, match=r"lies 0\.2 m to the left"):
        mirror_window(replace(window, center_y_m=0.2))


def test_a_term_of_some_joints_is_mirrored_in_its_own_order():
    task = find_task("velocity-flat-go2")
    contract = task.contract(task.preset("cpu").env)
    joints = ("RR_calf_joint", "FL_hip_joint", "RL_calf_joint", "FR_hip_joint")
    some = replace(contract, observations=(ObservationTerm("joint_vel", 4, history=2, joints=joints),))
    mirrored = apply(mirror_actor(some), torch.tensor([1.0, 2.0, 3.0, 4.0] * 2))
    torch.testing.assert_close(mirrored, torch.tensor([3.0, -4.0, 1.0, -2.0] * 2))
    turned = ObservationTerm("joint_vel", 12, joints=contract.joint_names[::-1])
    values = torch.randn(12)
    torch.testing.assert_close(
        apply(mirror_actor(replace(contract, observations=(turned,))), values.flip(0)),
        apply(mirror_joints(contract.joint_names), values).flip(0),
    )
    one = ObservationTerm("joint_vel", 1, joints=("FL_hip_joint",))
    with pytest.raises(GantryError, match="image of FL_hip_joint is FR_hip_joint, which it does not show"):
        mirror_actor(replace(contract, observations=(one,)))


def test_a_goal_is_mirrored_to_the_other_side():
    """x ahead, y to the left, sine and cosine of the heading error."""
    task = find_task("velocity-flat-go2")
    contract = task.contract(task.preset("cpu").env)
    goal = replace(contract, observations=(ObservationTerm("goal_command", 4), ObservationTerm("base_lin_vel", 3)))
    mirrored = apply(mirror_actor(goal), torch.tensor([1.0, 2.0, 0.6, 0.8, 0.1, 0.2, 0.3]))
    torch.testing.assert_close(mirrored, torch.tensor([1.0, -2.0, -0.6, 0.8, 0.1, -0.2, 0.3]))


@pytest.mark.parametrize("name", [name for name in task_names() if not name.startswith(("drive-", "yam-"))])
def test_mirroring_twice_changes_nothing(name):
    task = find_task(name)
    cfg = task.usual_env()
    maps = task.mirror(cfg)
    assert len(maps["actor"].source) == task.contract(cfg).observation_size
    for mirror in maps.values():
        values = torch.randn(3, len(mirror.source))
        assert not torch.equal(apply(mirror, values), values)
        assert torch.equal(apply(mirror, apply(mirror, values)), values)


def still(cfg):
    """The task without anything random."""
    return replace(
        cfg,
        num_envs=2,
        noise=None,
        machine=MachineCfg(),
        friction=(0.8, 0.8),
        added_mass_kg=(0.0, 0.0),
        com_offset_m=0.0,
        standing_share=0.0,
        resample_s=(1e3, 1e3),
        push_m_s=0.0,
        # With the cheap cone, friction depends on the direction of sliding, though not on the side.
        physics_dt_s=0.005,
    )


def joint_image(name):
    """Counterpart and sign of a joint, from the axis that it turns about in the mirrored world."""
    other = {"FL": "FR", "FR": "FL", "RL": "RR", "RR": "RL", "left": "right", "right": "left"}
    side, _, rest = name.partition("_")
    quadruped = len(side) == 2
    about_x_or_z = rest == "hip_joint" if quadruped else any(word in name for word in ("roll", "yaw"))
    return (f"{other[side]}_{rest}" if side in other else name), (-1.0 if about_x_or_z else 1.0)


def set_mirrored_pair(env, spec, generator):
    """Put environment 0 into a random state and environment 1 into its mirror image about the plane y = 0."""

    def noise(*shape):
        return torch.randn(*shape, generator=generator)

    data, names = env.sim.data, spec.joint_names
    image = [joint_image(name) for name in names]
    source = [names.index(other) for other, _ in image]
    sign = torch.tensor([factor for _, factor in image])
    adr = [int(env.sim.mj_model.joint(f"robot/{name}").qposadr[0]) for name in names]
    vel = [int(env.sim.mj_model.joint(f"robot/{name}").dofadr[0]) for name in names]
    qpos, qvel = data.qpos[0].clone(), 0.3 * noise(data.qvel.shape[1])
    qpos[adr] = torch.tensor(spec.array("default_rad"), dtype=qpos.dtype) + 0.08 * noise(len(names))
    quat = torch.tensor([1.0, 0.08, -0.06, 0.3])
    qpos[:3] = torch.tensor([0.0, 0.3, spec.base_height_m])
    qpos[3:7] = quat / quat.norm()
    there, there_v = qpos.clone(), qvel.clone()
    there[:3] *= torch.tensor([1.0, -1.0, 1.0])
    there[3:7] *= torch.tensor([1.0, -1.0, 1.0, -1.0])
    there_v[:3] *= torch.tensor([1.0, -1.0, 1.0])
    there_v[3:6] *= torch.tensor([-1.0, 1.0, -1.0])
    there[adr] = qpos[adr][source] * sign
    there_v[vel] = qvel[vel][source] * sign
    data.qpos[:] = torch.stack((qpos, there))
    data.qvel[:] = torch.stack((qvel, there_v))
    command = torch.tensor([0.6, 0.3, -0.5])
    env.command_manager.get_term("twist").vel_command_b[:] = torch.stack((command, command * torch.tensor([1, -1, -1])))
    env.sim.forward()
    env.sim.sense()
    env.state_version += 1


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("velocity-flat-go2", 2e-3),
        ("velocity-flat-g1", 2e-3),
        # The Go1's trunk is not quite symmetric: its published inertia has products with y.
        ("velocity-flat-go1", 3e-2),
    ],
)
def test_a_mirrored_robot_moves_as_the_mirror_image(name, tolerance):
    """Mirrored state, command, clock and action give the mirrored next state; what physics does here is the oracle."""
    task = find_task(name)
    cfg = still(task.preset("cpu").env)
    maps, spec = task.mirror(cfg), robot_spec(task.robot)
    with quietly():
        env = task.make_env(cfg, "cpu", 1).env
        env.reset()
    gait = task.contract(cfg).gait
    half_period = 0.5 / gait.frequency_hz / env.step_dt
    # A gait that balances passes on what the physics of the two differ by.
    exact = 1e-5 if gait.balance is None else 0.2 * tolerance
    env.episode_length_buf = torch.tensor([7.0, 7.0 + half_period])
    generator = torch.Generator().manual_seed(4)
    set_mirrored_pair(env, spec, generator)
    seen = []
    for _ in range(6):
        action = 0.5 * torch.randn(len(spec.joints), generator=generator)
        obs, _, terminated, *_ = env.step(torch.stack((action, apply(maps["action"], action))))
        assert not terminated.any()
        targets = env.action_manager.get_term("joint_pos").targets
        torch.testing.assert_close(targets[1], apply(maps["action"], targets[0]), atol=exact, rtol=0)
        seen.append({group: values.clone() for group, values in obs.items()})
    unmirrored = getattr(cfg, "history", 1) - 1  # the first observations hold frames from before
    for group in ("actor", "critic"):
        values = torch.stack([entry[group] for entry in seen[unmirrored:]])
        shown = values[:, 0].abs().amax(0) > tolerance
        assert shown[torch.tensor(maps[group].sign) < 0].all(), "an entry so small that its sign would not show"
        torch.testing.assert_close(values[:, 1], apply(maps[group], values[:, 0]), atol=tolerance, rtol=0)


def test_the_height_scan_is_mirrored_ray_by_ray():
    task = find_task("velocity-rough-go2")
    cfg = replace(task.preset("cpu").env, num_envs=1, terrain_levels=1)
    with quietly():
        env = task.make_env(cfg, "cpu", 1).env
    rays = env.scene[SCAN_SENSOR]._local_offsets[:, :2].cpu()
    source = torch.tensor(task.mirror(cfg)["critic"].source[-len(rays) :])
    source = source - source.min()
    torch.testing.assert_close(rays[source], rays * torch.tensor([1.0, -1.0]))


def batch_of(rows):
    values = torch.arange(1.0, 1.0 + 4 * rows).reshape(rows, 4)
    return SimpleNamespace(
        observations={"actor": values.clone(), "critic": values[:, :3].clone()},
        actions=values[:, :2].clone(),
        old_distribution_params=(values[:, 2:].clone(), values[:, :2].clone()),
    )


@pytest.mark.parametrize("rows", [6, 7])
def test_the_named_rows_of_a_batch_are_mirrored_and_nothing_else(rows):
    swap = MirrorMap((1, 0), (-1.0, -1.0))
    maps = {"actor": MirrorMap.signs(1, -1) + swap, "critic": MirrorMap.signs(-1, 1, 1)}
    before, batch, half = batch_of(rows), batch_of(rows), rows // 2
    RandomMirror(maps, swap, "cpu").mirror(batch, slice(half))
    pairs = [
        (before.observations["actor"], batch.observations["actor"], maps["actor"]),
        (before.observations["critic"], batch.observations["critic"], maps["critic"]),
        (before.actions, batch.actions, swap),
        # The mean of the old policy is mirrored like an action; standard deviations change sides but not sign.
        (before.old_distribution_params[0], batch.old_distribution_params[0], swap),
        (before.old_distribution_params[1], batch.old_distribution_params[1], MirrorMap((1, 0), (1.0, 1.0))),
    ]
    for old, new, mirror in pairs:
        assert torch.equal(new[:half], apply(mirror, old[:half]))
        assert torch.equal(new[half:], old[half:])


def test_another_half_is_drawn_at_every_call():
    """rsl_rl hands over the same rows in every epoch: each must be mirrored in half of them, not in all or none."""
    mirror, rows, calls = RandomMirror({}, MirrorMap.signs(-1, 1), "cpu"), 20, 400
    torch.manual_seed(0)
    mirrored = torch.zeros(rows)
    for _ in range(calls):
        batch = SimpleNamespace(observations={}, actions=torch.ones(rows, 2), old_distribution_params=None)
        mirror.augment_batch(batch, rows)
        assert int((batch.actions[:, 0] < 0).sum()) == rows // 2
        mirrored += batch.actions[:, 0] < 0
    assert (mirrored / calls - 0.5).abs().max() < 0.125  # five standard deviations


def test_actions_of_steps_mirror_in_place():
    """Front and rear feet are neither left nor right: y, turning and roll change sign, and nothing swaps."""
    found = mirror_action(stepping_contract())
    assert found.source == tuple(range(12))
    assert found.sign == (1, -1, 1, 1, -1, 1, 1, -1, -1, 1, 1, -1)
    names = stepping_contract().joint_names
    assert mirror_action(map_contract_for(robot_spec("go2"))) == mirror_joints(names)

"""Tasks of Isaac Lab, what can be tried without it: terms of hand-made managers, names of models, files."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import torch

from gantry_fixtures.mechanism import cartpole_contract
from gantry_hardware.errors import GantryError
from gantry_hardware.robots import robot_spec
from gantry_sim.isaaclab_tasks import actions, assets, fit, listing, terms
from gantry_sim.managed_tasks.contract import NoContractError
from gantry_sim.managed_tasks.terms import ActorTerm, Driven, MissingTermError
from gantry_sim.robots.models import robot_model
from gantry_sim.tasks import names

GO2 = "Isaac/IsaacLab/Robots/Unitree/Go2/go2.usd"
G1 = "Isaac/IsaacLab/Robots/Unitree/G1/g1_minimal.usd"
JOINTS = ("b_joint", "a_joint")


class UniformVelocityCommand:
    pass


class UniformPoseCommand:
    pass


def of_module(name, module=terms.MDP):
    """A function as Isaac Lab has it: known by module and name."""

    def function(env):
        raise AssertionError("the mapping calls no terms")

    function.__module__, function.__qualname__ = module, name
    return function


def term(name, **changes):
    cfg = {"func": of_module(name), "params": {}, "scale": None, "clip": None, "history_length": 0, "modifiers": None}
    return ActorTerm("policy", name, SimpleNamespace(**cfg | {"flatten_history_dim": True} | changes))


def array(*values):
    return SimpleNamespace(torch=torch.tensor(values))


@pytest.fixture
def driven():
    data = SimpleNamespace(
        body_com_pos_b=array([[0.02, 0.0, -0.005], [9.0, 9.0, 9.0]]), default_joint_vel=array([0.0, 0.0])
    )
    pattern = SimpleNamespace(resolution=0.1, size=[1.6, 1.0], direction=(0.0, 0.0, -1.0), ordering="xy")
    scanner = SimpleNamespace(
        pattern_cfg=pattern,
        offset=SimpleNamespace(pos=(0.0, 0.0, 20.0), rot=(0.0, 0.0, 0.0, 1.0)),
        prim_path="/World/envs/env_.*/Robot/base",
        ray_alignment="yaw",
    )

    class Scene(dict):
        def __init__(self, **entities):
            super().__init__(**entities)
            self.sensors = {"height_scanner": SimpleNamespace(cfg=scanner)}

    robot = SimpleNamespace(data=data, joint_names=list(JOINTS), body_names=["base", "leg"])
    commands = {"walk": UniformVelocityCommand(), "reach": UniformPoseCommand()}
    env = SimpleNamespace(
        scene=Scene(robot=robot),
        command_manager=SimpleNamespace(get_term=commands.get),
        action_manager=SimpleNamespace(total_action_dim=2),
    )
    return Driven(env, "robot", JOINTS)


def test_terms_are_told_by_their_functions(driven):
    told = [
        terms.contract_term(term(name, **changes), driven)
        for name, changes in (
            ("base_lin_vel", {"scale": 2.0}),
            ("base_ang_vel", {"clip": (-3.0, 3.0)}),
            ("projected_gravity", {}),
            ("joint_pos_rel", {"history_length": 3}),
            ("joint_vel_rel", {"scale": (0.05, 0.05)}),
            ("generated_commands", {"params": {"command_name": "walk"}}),
            ("last_action", {}),
        )
    ]
    assert [(item.name, item.size) for item in told] == [
        *(("base_lin_vel", 3), ("base_ang_vel", 3), ("projected_gravity", 3), ("joint_pos", 2), ("joint_vel", 2)),
        *(("velocity_command", 3), ("last_action", 2)),
    ]
    assert (told[0].scale, told[1].clip, told[3].history, told[4].scale) == (2.0, 3.0, 3, 0.05)
    # Isaac Lab's velocity is that of the root's centre of mass.
    assert told[0].point_in_base_m == pytest.approx((0.02, 0.0, -0.005))


class JointEffortAction:
    """As Isaac Lab has it, of the joint ``a_joint``: 20 N m per unit of action."""

    def __init__(self, **changes):
        self.cfg = SimpleNamespace(asset_name="robot", clip=None)
        self._joint_names, self._scale, self._offset = ["a_joint"], 20.0, 0.0
        self.processed_actions = torch.tensor([[7.0], [-8.0]])
        vars(self).update(changes)


def reset_joints_by_offset():
    raise AssertionError("events are read")


def reset_joints_by_scale():
    raise AssertionError("events are read")


def effort_env(driven, action, *events):
    """The environment with an action of efforts; joints of the entity are in another order than the robot's."""
    driven.env.scene["robot"].data.default_joint_pos = array([0.5, 0.0], [0.5, 0.0])
    driven.env.scene["robot"].data.joint_pos_limits = array([[-1.0, 0.65], [-1.0, 1.0]])
    driven.env.action_manager.active_terms = ["push"]
    driven.env.action_manager.get_term = {"push": action}.get
    driven.env.cfg = SimpleNamespace(events=SimpleNamespace(**{f"event{i}": event for i, event in enumerate(events)}))
    return driven.env


def test_efforts_are_shares_of_the_limits_and_starts_those_of_the_events(driven):
    def event(mode, low, high, joint_names, name="robot", func=reset_joints_by_offset):
        chosen = SimpleNamespace(name=name, joint_names=joint_names)
        return SimpleNamespace(mode=mode, func=func, params={"position_range": (low, high), "asset_cfg": chosen})

    events = (
        event("reset", -0.1, 0.2, ["b_.*"]),
        event("startup", -9.0, 9.0, None),
        event("reset", -9.0, 9.0, None, "door"),
    )
    action = JointEffortAction()
    env = effort_env(driven, action, *events)
    found = actions.driven_of(env)
    assert found.joint_names == JOINTS
    kind = actions.kind_of(actions.joint_action(env))
    parts = kind.parts(action, found, np.array([30.0, 80.0]), [], 5.0)
    assert (parts.action.kind, parts.action.scale, parts.action.clip) == ("target/joint/effort", (0.25,), 5.0)
    assert (parts.body.driven_joints, parts.command.names) == (("a_joint",), ())
    assert parts.body.start_lower_rad == pytest.approx((0.4, 0.0))
    assert parts.body.start_upper_rad == pytest.approx((0.65, 0.0)), "the joint's limit"
    recorded = kind.recorded(action, found)
    assert recorded["joint_target_effort_nm"].tolist() == [[0.0, 7.0], [0.0, -8.0]]
    assert recorded["joint_target_rad"].tolist() == [[0.5, 0.0], [0.5, 0.0]]
    contract = cartpole_contract()
    assert kind.clip(contract) == {"slider_to_cart": (-400.0, 400.0)}
    with pytest.raises(NoContractError, match=r"efforts have the offset 1\.0, expected none"):
        kind.parts(JointEffortAction(_offset=1.0), found, np.array([30.0, 80.0]), [], 5.0)
    with pytest.raises(NoContractError, match=r"pushes 'a_joint' with 20 per unit, beyond the joint's limit 0\.001"):
        kind.parts(action, found, np.array([30.0, 0.001]), [], 5.0)
    scaled = effort_env(driven, action, event("reset", 0.5, 1.5, None, func=reset_joints_by_scale))
    with pytest.raises(NoContractError, match="event reset_joints_by_scale places joints; expected reset"):
        kind.parts(action, actions.driven_of(scaled), np.array([30.0, 80.0]), [], 5.0)
    limited = JointEffortAction(cfg=SimpleNamespace(clip={".*": (-1.0, 1.0)}))
    with pytest.raises(NoContractError, match="efforts are limited to"):
        kind.clipped(limited, np.zeros(2), np.zeros(2))


def test_other_actions_are_named(driven):
    with pytest.raises(NoContractError, match=r"'push' \(SimpleNamespace\); expected a single JointPositionAction or"):
        actions.joint_action(effort_env(driven, SimpleNamespace()))


def test_a_height_scan_is_a_window(driven):
    scan = term("height_scan", params={"sensor_cfg": SimpleNamespace(name="height_scanner")}, clip=(-1.0, 1.0))
    assert terms.contract_term(scan, driven).size == 17 * 11
    window = terms.window_of([term("base_ang_vel"), scan], driven)
    assert (window.rows, window.cols, window.resolution_m, window.nominal_base_height_m) == (17, 11, 0.1, 0.5)
    driven.env.scene.sensors["height_scanner"].cfg.prim_path = "/World/envs/env_.*/Robot/leg"
    with pytest.raises(MissingTermError, match="point down from the base 'base'"):
        terms.window_of([scan], driven)


def test_a_term_may_show_some_joints(driven):
    chosen = {"asset_cfg": SimpleNamespace(name="robot", joint_ids=[1])}
    found = terms.contract_term(term("joint_vel", params=chosen), driven)
    assert (found.name, found.size, found.joints) == ("joint_vel", 1, ("a_joint",))
    with pytest.raises(MissingTermError, match="shows a_joint; the contract's joints are b_joint"):
        terms.contract_term(term("joint_vel", params=chosen), Driven(driven.env, "robot", JOINTS[:1]))


@pytest.mark.parametrize(
    ("made", "part"),
    [
        (term("joint_effort"), "'joint_effort' of group 'policy' .*observations.joint_effort.* none that Gantry knows"),
        (term("joint_pos_rel", func=of_module("joint_pos_rel", "other.package")), "other.package.joint_pos_rel"),
        (term("base_ang_vel", scale=(1.0, 2.0, 1.0)), r"a scale for each number, \[1.0, 2.0\]"),
        (term("base_ang_vel", clip=(-1.0, 2.0)), r"clipped to \[-1, 2\]"),
        (term("base_ang_vel", history_length=2, flatten_history_dim=False), "history as an axis"),
        (term("base_ang_vel", modifiers=[SimpleNamespace(func=of_module("bias"))]), "modifiers"),
        (term("generated_commands", params={"command_name": "reach"}), "shows a UniformPoseCommand"),
        (term("base_ang_vel", params={"asset_cfg": SimpleNamespace(name="cube", joint_ids=[])}), "is of 'cube'"),
    ],
)
def test_what_a_contract_cannot_say_is_refused_by_name(driven, made, part):
    with pytest.raises(MissingTermError, match=part):
        terms.contract_term(made, driven)


@dataclass
class Entity:
    """As Isaac Lab's SceneEntityCfg."""

    name: str = "robot"
    joint_names: object = None
    body_names: object = None


@dataclass
class Actuator:
    """As Isaac Lab's configurations of actuators."""

    joint_names_expr: list
    stiffness: object = field(default_factory=dict)
    damping: object = 0.5


@pytest.fixture(scope="module")
def g1():
    model = assets.source_model(G1)
    return fit.Names(
        robot_spec("g1").joint_names, tuple(body.name for body in model.bodies[1:]), assets.feet_links("g1")
    )


def test_patterns_that_match_nothing_are_left_out(g1):
    arms = Entity(joint_names=[".*_shoulder_pitch_joint", ".*_elbow_pitch_joint"])
    assert fit.fit_entity(arms, g1) == ""
    assert arms.joint_names == [".*_shoulder_pitch_joint"]
    fingers = Entity(joint_names=[".*_five_joint", ".*_six_joint"])
    assert fit.fit_entity(fingers, g1) == "joints .*_five_joint, .*_six_joint"
    torso = Entity(body_names="torso_link")
    assert fit.fit_entity(torso, g1) == ""
    assert torso.body_names == "torso_link"


def test_a_foot_is_the_link_that_carries_it():
    model = assets.source_model(GO2)
    go2 = fit.Names(
        robot_spec("go2").joint_names, tuple(body.name for body in model.bodies[1:]), assets.feet_links("go2")
    )
    feet = Entity("contact_forces", body_names=".*_foot")
    assert fit.fit_entity(feet, go2) == ""
    assert sorted(feet.body_names) == ["FL_calf", "FR_calf", "RL_calf", "RR_calf"]


def test_actuators_and_pose_follow_the_joints_of_the_model():
    spec = robot_spec("go2")
    robot = SimpleNamespace(
        actuators={
            "legs": Actuator([".*_hip_joint", ".*_thigh_joint", ".*_calf_joint"], {".*_hip_joint": 25.0, "tail": 1.0}),
            "tail": Actuator(["tail"]),
        },
        init_state=SimpleNamespace(joint_pos={".*_calf_joint": -1.5, "tail": 0.3}),
    )
    assert fit.fit_actuators(robot, spec) == []
    assert list(robot.actuators) == ["legs"]
    assert robot.actuators["legs"].stiffness == {".*_hip_joint": 25.0}
    assert robot.init_state.joint_pos[".*_calf_joint"] == -1.5
    assert robot.init_state.joint_pos["FL_thigh_joint"] == 0.9
    assert "tail" not in robot.init_state.joint_pos


def test_gains_are_those_that_the_robot_takes():
    spec = robot_spec("go2")
    legs = Actuator([".*_joint"], {".*_hip_joint": 25.0, ".*_t.*": 1000.0, ".*_calf_joint": 25.0}, damping=100.0)
    robot = SimpleNamespace(actuators={"legs": legs}, init_state=SimpleNamespace(joint_pos={".*": 0.0}))
    told = fit.fit_actuators(robot, spec)
    assert [text.partition(" (")[0] for text in told] == [
        "stiffness of 'legs' lowered to what the robot takes",
        "damping of 'legs' lowered to what the robot takes",
    ]
    limits = {joint.name: 5.0 * joint.stiffness_nm_rad for joint in spec.joints}
    assert legs.stiffness["FL_hip_joint"] == 25.0
    assert limits["FL_thigh_joint"] <= legs.stiffness["FL_thigh_joint"] < 1000.0
    assert set(legs.damping) == set(spec.joint_names)


@pytest.mark.parametrize("name", [*assets.ROBOTS, *assets.MACHINES])
def test_models_have_the_names_and_masses_of_their_sources(name):
    model = assets.source_model(name).compile()
    joints = {model.joint(i).name for i in range(model.njnt) if model.jnt_type[i] != mujoco.mjtJoint.mjJNT_FREE}
    if name in assets.ROBOTS:
        robot = assets.ROBOTS[name]
        assert joints == set(robot_spec(robot).joint_names)
        whole = robot_model(robot).compile()
        assert model.body_mass.sum() == pytest.approx(whole.body_mass.sum(), rel=1e-9)
    else:
        assert {"front_left_leg", "front_left_foot", "right_back_foot"} <= joints
        # The pose that Isaac Lab starts in is within the limits.
        foot = model.joint("front_right_foot")
        assert foot.range[0] < -np.pi / 4 < foot.range[1]


def test_files_of_others_are_told_apart(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(assets.ROOT_VARIABLE, "set, so that what the test sets is taken back")
    monkeypatch.delenv(assets.ROOT_VARIABLE)
    assets.use_own_root()
    own = str(assets.own_root() / GO2)
    assert assets.is_own(own)
    assert assets.below_root(own) == GO2
    assert assets.robot_of(f"https://server/Assets/{GO2}") == "go2"
    assert assets.robot_of("https://server/Assets/spot.usd") is None
    assert assets.robot_of("https://server/Assets/Isaac/IsaacLab/Robots/I2RT/yam.usd") == "yam", "a robot of its name"
    assert assets.source_model("Isaac/IsaacLab/Robots/I2RT/yam.usd").joint("joint1").name == "joint1"
    assert assets.robot_of("https://server/Assets/Isaac/Props/yam.usd") is None, "no robot's folder"
    with pytest.raises(GantryError, match=r"Spot/spot\.usd comes from .* `gantry robot new spot"):
        assets.provide(str(assets.own_root() / "Isaac/Spot/spot.usd"))
    assets.provide("https://server/Assets/Isaac/Spot/spot.usd")  # not ours to make
    assets.provide(str(assets.own_root() / assets.GROUND))
    assert "PhysicsCollisionAPI" in (assets.own_root() / assets.GROUND).read_text()


@pytest.mark.parametrize("root", ["https://server/Assets", "/somewhere/Assets", ""])
def test_a_root_of_the_users_is_left_alone(monkeypatch, tmp_path, root):
    """Files of the user's root are not made here, and the ground's own file does not stop a task that has one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(assets.ROOT_VARIABLE, root)
    fit.provide_files({"usd_path": f"{root}/Isaac/Spot/spot.usd"})
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] in ([], ["default_ground_plane.usda"])


def test_a_name_without_its_prefix_is_told():
    with pytest.raises(GantryError, match="called isaaclab:Isaac-Cartpole here"):
        names.require_task("Isaac-Cartpole")


def test_listed_tasks_are_those_of_robots_with_a_model():
    robots = {info.robot for info in listing.MODELLED} - {"none"}
    assert robots == set(assets.ROBOTS.values())

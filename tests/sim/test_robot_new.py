"""``gantry robot``: a package from a model, what is wrong with a model, and the checks of an installed robot."""

import importlib
import math
import sys

import pytest

from gantry_deploy.cli.main import main
from gantry_deploy.observations.mirrors import MirrorMap, mirror_feet, robot_joint_mirror
from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.model.spec import JointSpec, RobotSpec
from gantry_hardware.robots import robot_spec
from gantry_mapping.sensing.camera import REALSENSE_LIKE
from gantry_sim.robot_kit.checking import check_robot
from gantry_sim.robot_kit.findings import fails
from gantry_sim.robot_kit.preparing import prepare
from gantry_sim.robot_kit.reading import read_source
from gantry_sim.robot_kit.study import study
from gantry_sim.robots.depth_camera import head_camera
from gantry_sim.tasks.catalogue import TaskInfo
from gantry_sim.tasks.locomotion.presets import flat_task
from gantry_sim.tasks.locomotion.robots import legged_robot_cfg

LEGS = {"LF": (1, 1), "RF": (1, -1), "LH": (-1, 1), "RH": (-1, -1)}
LINK_M, SOLE_M, KNEE_RAD = 0.25, 0.03, 0.7
PARTS = ("HAA", "HFE", "KFE")


def leg(name, front, side):
    return f"""
    <body name="{name}_hip" pos="{0.3 * front} {0.1 * side} 0">
      <joint name="{name}_HAA" axis="1 0 0" range="-0.8 0.8" armature="0.02"/>
      <inertial pos="0 0 0" mass="1" diaginertia="0.002 0.002 0.002"/>
      <body name="{name}_thigh" pos="0 {0.1 * side} 0">
        <joint name="{name}_HFE" axis="0 1 0" range="-2 2" armature="0.02"/>
        <inertial pos="0 0 -0.1" mass="1.5" diaginertia="0.01 0.01 0.001"/>
        <body name="{name}_shank" pos="0 0 {-LINK_M}">
          <joint name="{name}_KFE" axis="0 1 0" range="-2.7 2.7" armature="0.02"/>
          <inertial pos="0 0 -0.1" mass="0.3" diaginertia="0.002 0.002 0.0001"/>
          <geom name="{name}_foot" type="sphere" pos="0 0 {-LINK_M}" size="{SOLE_M}"/>
        </body>
      </body>
    </body>"""


def quadruped(angles=(0.0, KNEE_RAD, -2 * KNEE_RAD), mesh="", trunk="0.15 0.4 0.5"):
    """A quadruped of 23.2 kg; its key frame holds one leg's angles for all four."""
    motors = "".join(f'<motor joint="{n}_{p}" ctrlrange="-6 6" gear="10"/>' for n in LEGS for p in PARTS)
    pose = " ".join(str(angle) for _ in LEGS for angle in angles)
    return f"""
    <mujoco model="anything">
      <compiler angle="radian"/>
      <asset>{f'<mesh name="shell" file="{mesh}"/>' if mesh else ""}</asset>
      <worldbody>
        <geom name="ground" type="plane" size="1 1 1"/>
        <body name="trunk" pos="0 0 0.5">
          <freejoint/>
          <inertial pos="0 0 0" mass="12" diaginertia="{trunk}"/>
          <geom name="shell" {'type="mesh" mesh="shell"' if mesh else 'type="box" size="0.25 0.12 0.06"'}/>
          {"".join(leg(name, *place) for name, place in LEGS.items())}
        </body>
      </worldbody>
      <actuator>{motors}</actuator>
      <keyframe><key name="home" qpos="0 0 0.41 1 0 0 0 {pose}"/></keyframe>
    </mujoco>"""


def urdf(mesh="package://dog_description/meshes/trunk.stl"):
    """The same legs as a URDF, below a link without mass, with fixed links as feet."""
    links, joints = [], []

    def link(name, mass, shape=""):
        moments = 'ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"'
        box = f'<inertial><mass value="{mass}"/><inertia {moments}/></inertial>'
        links.append(f'<link name="{name}">{box if mass else ""}{shape}</link>')

    def joint(name, kind, parent, child, xyz, axis="0 1 0"):
        limit = '<limit lower="-2" upper="2" effort="40" velocity="15"/>' if kind == "revolute" else ""
        joints.append(
            f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
            f'<origin xyz="{xyz}"/><axis xyz="{axis}"/>{limit}</joint>'
        )

    ball = f'<collision><geometry><sphere radius="{SOLE_M}"/></geometry></collision>'
    link("base_link", 0)
    link("trunk", 12, f'<collision><geometry><mesh filename="{mesh}"/></geometry></collision>')
    joint("base_to_trunk", "fixed", "base_link", "trunk", "0 0 0")
    for name, (front, side) in LEGS.items():
        for part in ("hip", "thigh", "shank"):
            link(f"{name}_{part}", 1)
        link(f"{name}_sole", 0.1, ball)
        joint(f"{name}_HAA", "revolute", "trunk", f"{name}_hip", f"{0.3 * front} {0.1 * side} 0", "1 0 0")
        joint(f"{name}_HFE", "revolute", f"{name}_hip", f"{name}_thigh", f"0 {0.1 * side} 0")
        joint(f"{name}_KFE", "revolute", f"{name}_thigh", f"{name}_shank", f"0 0 {-LINK_M}")
        joint(f"{name}_end", "fixed", f"{name}_shank", f"{name}_sole", f"0 0 {-LINK_M}")
    return f'<robot name="dog">{"".join(links)}{"".join(joints)}</robot>'


def write_obj(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("v 0 0 0\nv .1 0 0\nv 0 .1 0\nv 0 0 .1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")


def new(tmp_path, text, name="testdog", *more):
    model = tmp_path / "model.xml"
    model.write_text(text)
    return main(["robot", "new", name, "--model", str(model), "--output", str(tmp_path / name), *more])


@pytest.fixture
def installed(tmp_path, monkeypatch, capsys):
    """A package that `robot new` wrote, found as an installed one is."""
    assert new(tmp_path, quadruped()) == 0
    capsys.readouterr()
    folder = tmp_path / "testdog"
    info = folder / "testdog_robot-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: testdog-robot\nVersion: 0.1.0\n")
    groups = (folder / "pyproject.toml").read_text().partition("[project.entry-points.")[2].partition("[tool")[0]
    lines = [f"[project.entry-points.{groups}"][0].replace('project.entry-points."', "").replace('"]', "]")
    (info / "entry_points.txt").write_text(lines.replace('"', ""))
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for module in [name for name in sys.modules if name.startswith("testdog_robot")]:
        del sys.modules[module]


def test_the_numbers_are_those_of_the_model(installed):
    spec = importlib.import_module("testdog_robot.numbers").SPEC
    assert spec.joint_names == tuple(f"{name}_{part}" for name in LEGS for part in PARTS)
    assert spec.mass_kg == pytest.approx(12 + 4 * (1 + 1.5 + 0.3))
    assert spec.feet == tuple(f"{name}_foot" for name in LEGS)
    assert spec.numbers("upper_rad")[:3] == (0.8, 2.0, 2.7)
    assert spec.numbers("default_rad")[:3] == (0.0, KNEE_RAD, -2 * KNEE_RAD)
    assert set(spec.numbers("effort_limit_nm")) == {60.0}
    assert set(spec.numbers("armature_kg_m2")) == {0.02}
    assert spec.base_height_m == pytest.approx(2 * LINK_M * math.cos(KNEE_RAD) + SOLE_M, abs=1e-4)
    assert spec.mirrored_joints[:3] == (("RF_HAA", -1.0), ("RF_HFE", 1.0), ("RF_KFE", 1.0))
    assert spec.mirrored_feet == ("RF_foot", "LF_foot", "RH_foot", "LH_foot")
    text = (installed / "testdog_robot" / "numbers.py").read_text()
    assert "effort_limit_nm=60.0,  # from model" in text
    assert "velocity_limit_rad_s=20.0,  # TODO: the model has no speed limit" in text


def test_it_is_known_checked_and_has_a_gait(installed, capsys):
    assert robot_spec("testdog").embodiment == "legs"
    assert legged_robot_cfg("testdog").gait.foot_offset == (0.5, 0.0, 0.0, 0.5)
    assert main(["robot", "check", "testdog"]) == 0
    output = capsys.readouterr().out
    for check in ("model", "joints", "mass", "pose", "symmetry", "gait", "standing", "conformance"):
        assert f"pass  {check}" in output
    assert "velocity-flat-testdog" in output
    assert "open  numbers" in output
    assert output.endswith("PASSED\n")


def test_what_does_not_fit_the_model_fails(installed, capsys):
    path = installed / "testdog_robot" / "numbers.py"
    text = path.read_text().replace('("RF_HAA", -1.0)', '("RF_HAA", 1.0)')
    path.write_text(text.replace("mass_kg=23.2", "mass_kg=20.0"))
    assert main(["robot", "check", "testdog"]) == 1
    output = capsys.readouterr().out
    assert "FAIL  mass          mass_kg is 20 kg, the model weighs 23.2 kg" in output
    assert "'LF_HAA' mirrors to 'RF_HAA' by +1 in the numbers and to 'RF_HAA' by -1 in the model" in output
    assert output.endswith("FAILED\n")


def test_an_unknown_robot_is_refused_with_the_near_miss(installed, capsys):
    assert main(["robot", "check", "testdogg"]) == 2
    assert "Unknown robot 'testdogg'. Did you mean 'testdog'?" in capsys.readouterr().err


def test_three_faults_are_found_at_once(tmp_path, capsys):
    folded = (0.0, 1.4, -2.7)
    text = quadruped(folded, mesh="shell.obj").replace('size="0.03"', 'size="0.09"')
    text = text.replace('mass="1" diaginertia="0.002 0.002 0.002"', 'mass="1" diaginertia="0.002 0.002 0.02"', 1)
    assert new(tmp_path, text.replace('mass="1.5"', 'mass="0"', 1)) == 2
    shown = capsys.readouterr()
    assert "FAIL  mesh          'shell.obj' is missing; expected at" in shown.out
    assert "'LF_hip' has the principal moments 0.002, 0.002, 0.02 kg m^2: 0.02 > 0.002 + 0.002" in shown.out
    assert "FAIL  mass          'LF_thigh' has 0 kg; expected more than zero." in shown.out
    assert "nothing was written" in shown.err
    assert not (tmp_path / "testdog").exists()


def test_a_reversed_range_is_named(tmp_path, capsys):
    assert new(tmp_path, quadruped().replace('range="-0.8 0.8"', 'range="0.8 -0.8"', 1)) == 2
    shown = capsys.readouterr().out
    assert "FAIL  range         'LF_HAA' has the range 0.8 to -0.8 rad; expected the lower limit first" in shown
    assert "has no range" not in shown


@pytest.mark.parametrize(("moments", "told"), [("0 0.4 0.4", "0, 0.4, 0.4"), ("-0.1 0.4 0.5", "-0.1, 0.4, 0.5")])
def test_zero_and_negative_inertias_are_named(tmp_path, capsys, moments, told):
    assert new(tmp_path, quadruped(trunk=moments)) == 2
    assert f"FAIL  inertia       'trunk' has the principal moments {told} kg m^2" in capsys.readouterr().out


def test_a_pose_that_collides_is_written_and_marked(tmp_path, capsys):
    text = quadruped().replace('pos="0.3 0.1 0"', 'pos="0.3 0.02 0"').replace('pos="0.3 -0.1 0"', 'pos="0.3 -0.02 0"')
    text = text.replace('pos="0 0.1 0"', 'pos="0 0 0"').replace('pos="0 -0.1 0"', 'pos="0 0 0"')
    assert new(tmp_path, text) == 0
    line = "'LF_shank' and 'RF_shank' reach 20.0 mm into each other in the default pose; expected none."
    assert line in capsys.readouterr().out
    assert line in (tmp_path / "testdog" / "README.md").read_text()


def test_a_urdf_becomes_a_model_with_its_mesh(tmp_path, capsys):
    folder = tmp_path / "dog_description"
    write_obj(folder / "meshes" / "trunk.obj")
    (folder / "urdf").mkdir()
    path = folder / "urdf" / "dog.urdf"
    path.write_text(urdf("package://dog_description/meshes/trunk.obj"))
    found = study(source := read_source(path), prepare(source))
    assert fails(found.findings) == []
    assert [foot.name for foot in found.feet] == [f"{name}_sole" for name in LEGS]
    assert found.mass_kg == pytest.approx(12 + 4 * 3.1)
    assert {(joint.effort_nm, joint.velocity_rad_s) for joint in found.joints} == {(40.0, 15.0)}
    assert main(["robot", "new", "testurdf", "--model", str(path), "--output", str(tmp_path / "testurdf")]) == 0
    model = tmp_path / "testurdf" / "testurdf_robot" / "model"
    assert (model / "assets" / "trunk.obj").is_file()
    assert "package://" not in (model / "testurdf.xml").read_text()
    assert "link 'base_link' weighs nothing" in capsys.readouterr().out


def test_a_ros_package_that_is_elsewhere_is_asked_for(tmp_path, capsys):
    path = tmp_path / "model.urdf"
    path.write_text(urdf("package://dog_description/meshes/trunk.obj"))
    words = ["robot", "new", "testurdf", "--model", str(path), "--output", str(tmp_path / "testurdf")]
    assert main(words) == 2
    assert "--package dog_description=FOLDER" in capsys.readouterr().out
    write_obj(tmp_path / "away" / "meshes" / "trunk.obj")
    assert main([*words, "--package", f"dog_description={tmp_path / 'away'}"]) == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<mujoco><worldbody>", "is no XML"),
        ("<mujoco><worldbody><bdy/></worldbody></mujoco>", "is no MJCF that MuJoCo reads"),
        ("<sdf/>", "has the root <sdf>; expected <mujoco> (MJCF) or <robot> (URDF)"),
        ("<mujoco/>", "has no hinge joint"),
        (urdf().replace('effort="40"', 'effort="x"'), "has effort=\"x\" at joint 'LF_HAA'; expected a number"),
        (
            '<robot><xacro:macro xmlns:xacro="http://www.ros.org/wiki/xacro"/></robot>',
            "holds xacro macros; expand them first",
        ),
        (
            quadruped().replace("<freejoint/>", '<joint name="hinge"/>').replace("0 0 0.41 1 0 0 0", "0"),
            "Joint 'hinge' turns on the world",
        ),
    ],
)
def test_a_damaged_model_is_one_message(tmp_path, capsys, text, told):
    assert new(tmp_path, text) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "testdog").exists()


def test_a_name_with_a_line_break_cannot_write_a_line_of_python(tmp_path, capsys):
    text = quadruped().replace("<freejoint/>", '<freejoint name="free&#10;import os"/>')
    assert "&#10;" in text
    assert new(tmp_path, text) == 2
    assert "has control characters; expected none" in capsys.readouterr().err
    assert not (tmp_path / "testdog").exists()


@pytest.mark.parametrize("name", ["My-Dog", "class", "2dog", "dog.one", "../dog"])
def test_a_name_that_no_package_can_have_is_refused(tmp_path, capsys, name):
    assert main(["robot", "new", name, "--model", str(tmp_path / "none.xml")]) == 2
    assert f"'{name}' is no name for a robot; expected a small letter" in capsys.readouterr().err


def test_what_exists_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "testdog").mkdir()
    assert new(tmp_path, quadruped()) == 2
    assert "exists already; expected a new folder" in capsys.readouterr().err
    assert list((tmp_path / "testdog").iterdir()) == []
    assert new(tmp_path, quadruped(), "go2") == 2
    assert "A robot 'go2' is installed already" in capsys.readouterr().err


def test_declared_mirrors_win_over_names():
    joints = tuple(JointSpec(name, -1, 1, 1, 1, 0, 1, 1, 0) for name in ("one", "two"))
    spec = RobotSpec(
        "x", "arm", joints, ("p", "q"), 0.3, 0.1, 1.0, "made up", mirrored_joints=(("two", -1), ("one", -1)),
        mirrored_feet=("q", "p"),
    )  # fmt: skip
    assert mirror_feet(spec) == MirrorMap((1, 0), (1.0, 1.0))
    assert robot_joint_mirror("go2", robot_spec("go2").joint_names).sign[:3] == (-1.0, 1.0, 1.0)
    with pytest.raises(GantryError, match="mirrored_joints are two, two; expected for each of one, two"):
        RobotSpec("x", "arm", joints, (), 0.3, 0.1, 1.0, "made up", mirrored_joints=(("two", 1), ("two", 1)))


def entry(info, group, value):
    path = info / "entry_points.txt"
    path.write_text(path.read_text() + f"\n[{group}]\ntestdog = {value}\n")


def test_a_package_may_bring_its_own_walker_and_camera(installed, monkeypatch):
    info = installed / "testdog_robot-0.1.0.dist-info"
    (installed / "testdog_robot" / "extras.py").write_text(
        "from dataclasses import replace\n"
        "from gantry_mapping.sensing.camera import REALSENSE_LIKE as CAMERA\n"
        "from gantry_sim.tasks.locomotion.robots import legged_robot_cfg\n"
        "def make():\n    return replace(legged_robot_cfg('go2'), swing_height_m=0.123)\n"
    )
    with pytest.raises(UnknownNameError, match="robot with a depth camera"):
        head_camera("testdog")
    entry(info, "gantry.legged_robots", "testdog_robot.extras:make")
    entry(info, "gantry.head_cameras", "testdog_robot.extras:CAMERA")
    # Packages are looked through once for each path.
    monkeypatch.syspath_prepend(str(installed))
    assert legged_robot_cfg("testdog").swing_height_m == 0.123
    assert head_camera("testdog") == REALSENSE_LIKE


def test_without_mirror_images_the_task_learns_without_them(tmp_path):
    text = quadruped().replace('pos="0.3 0.1 0"', 'pos="0.2 0.1 0"')
    assert new(tmp_path, text) == 0
    assert (
        "flat_task(task_info.FLAT, mirror=False)" in (tmp_path / "testdog" / "testdog_robot" / "tasks.py").read_text()
    )
    task = flat_task(TaskInfo("velocity-flat-go2", "", "go2"), mirror=False)
    assert [task.preset(name).learner.mirror for name in ("cpu", "gpu")] == ["none", "none"]
    assert task.mirror(task.preset("cpu").env) is None


def test_a_robot_of_gantry_passes():
    assert fails(check_robot("go2")) == []

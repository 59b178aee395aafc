"""A robot's scene with motors on its joints, compiled, and where the compiled arrays keep what the spec names."""

from __future__ import annotations

import math
from collections.abc import Callable

import mujoco
import numpy as np
from numpy.typing import NDArray

from gantry_hardware.errors import GantryError
from gantry_hardware.model.spec import JointSpec, RobotSpec
from gantry_sim.robot_kit.geometry import lowest_point_m
from gantry_sim.robots.model_conventions import base_body
from gantry_sim.robots.models import has_free_base, scene_model

FloatArray = NDArray[np.float64]

_ABOVE_ALL_M = 10.0
_AROUND_M = ((0.0, 0.0), (0.2, 0.13), (0.2, -0.13), (-0.2, 0.13), (-0.2, -0.13))
HAND = "hand on "
"""Name, before that of a joint without a motor, of the constraint that holds it while the robot stands."""
HANGING_CLEARANCE_M = 0.2
"""With a fixed base, the base hangs this much higher than it stands."""


def robot_with_motors(
    spec: RobotSpec,
    *,
    timestep_s: float = 0.002,
    friction: float = 1.0,
    ground_softness_s: float = 0.0,
    added_mass_kg: float = 0.0,
    fixed_base: bool = False,
    visuals: bool = True,
    terrain: str = "",
    terrain_difficulty: float = 0.5,
    terrain_seed: int = 0,
    furnish: Callable[[mujoco.MjSpec], None] = lambda scene: None,
) -> mujoco.MjModel:
    """The robot on a floor or on terrain, one motor per joint in the spec's order, its torque clipped to the limit.

    A joint without a motor has one with next to no torque, and a constraint that can hold it, as a hand would.

    A motor's force is ``ctrl + biasprm[1] q + biasprm[2] dq``, so that stiffness and damping, negated, go to
    ``actuator_biasprm`` and the constant part of the impedance law to ``ctrl``.

    Args:
        spec: Which robot.
        timestep_s: Physics step.
        friction: Sliding friction between the feet and the floor.
        ground_softness_s: Time constant with which the ground gives way under the feet; 0 for the model's own.
        added_mass_kg: Payload at the base's centre of mass; may be negative.
        fixed_base: Hang the robot by its base above the floor.
        visuals: Load the meshes that are only looked at.
        terrain: Name of a terrain, see :class:`gantry_sim.robots.terrain_scene.TerrainCfg`; empty for a flat floor.
        terrain_difficulty: 0 to 1.
        terrain_seed: Of the terrain.
        furnish: Lays further things into the scene.

    Raises:
        UnknownNameError: If the robot has no MuJoCo model, or if there is no such terrain.
        GantryError: If the base would weigh nothing, or a number makes no sense.
    """
    ground = {"foot_friction": friction, "ground_softness_s": ground_softness_s}
    scene = scene_model(spec.name, timestep_s=timestep_s, visuals=visuals, **ground)
    floats = has_free_base(scene)
    _load_base(scene, spec.name, added_mass_kg)
    if terrain:
        from gantry_sim.robots.terrain_scene import (  # Loads torch, which a flat floor does not need.
            TerrainCfg,
            add_terrain,
        )

        add_terrain(scene, spec.name, TerrainCfg(terrain, terrain_difficulty, terrain_seed))
    furnish(scene)
    for joint in spec.joints:
        _add_motor(scene, joint)
    for name in getattr(spec.body, "passive_joints", ()):
        _add_hand(scene, name)
    if fixed_base and floats:
        _hang(scene, base_body(scene), spec.base_height_m + HANGING_CLEARANCE_M)
    # A state that has blown up must be seen as such, not quietly put back to the start.
    scene.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    return scene.compile()


def _add_motor(scene: mujoco.MjSpec, joint: JointSpec) -> None:
    """Put a motor onto a joint, its torque clipped to the limit."""
    scene.add_actuator(
        name=joint.name,
        target=joint.name,
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        gaintype=mujoco.mjtGain.mjGAIN_FIXED,
        biastype=mujoco.mjtBias.mjBIAS_AFFINE,
        forcelimited=True,
        forcerange=[-joint.effort_limit_nm, joint.effort_limit_nm],
    )


def _add_hand(scene: mujoco.MjSpec, joint: str) -> None:
    """Put a hand, which holds nothing yet, onto a joint without a motor."""
    scene.add_equality(
        name=HAND + joint, type=mujoco.mjtEq.mjEQ_JOINT, name1=joint, active=False, data=[0.0] * mujoco.mjNEQDATA
    )


def _load_base(scene: mujoco.MjSpec, name: str, added_mass_kg: float) -> None:
    """Put a payload onto the base.

    Raises:
        GantryError: If the base would weigh nothing, or is fixed to the ground.
    """
    base = base_body(scene)
    if has_free_base(scene):
        if not base.mass + added_mass_kg > 0.0:
            raise GantryError(
                f"'{name}' cannot carry 'added_mass_kg' = {added_mass_kg}: its base weighs {base.mass:.3f} kg."
            )
        base.mass += added_mass_kg
    elif added_mass_kg:
        raise GantryError(f"'{name}' is fixed to the ground, where 'added_mass_kg' = {added_mass_kg} changes nothing.")


class SceneIndex:
    """Indices of a compiled scene by the names of the spec.

    Args:
        model: The compiled scene.
        spec: The robot in it.
    """

    def __init__(self, model: mujoco.MjModel, spec: RobotSpec) -> None:
        joints = [model.joint(name) for name in spec.joint_names]
        self.joint_qpos = np.array([joint.qposadr[0] for joint in joints])
        """Shape (n,), addresses in qpos in the order of the spec."""
        self.joint_qvel = np.array([joint.dofadr[0] for joint in joints])
        """Shape (n,), addresses in qvel in the order of the spec."""
        self.is_free = bool(model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE)
        """Whether the base floats; its position and velocity then come first."""
        self.base = int(model.body_rootid[model.jnt_bodyid[0]])
        """Index of the base's body."""
        start = int(model.sensor("imu_lin_acc").adr[0])
        self.accelerometer = slice(start, start + 3)
        """Of the sensor data."""
        self._num_feet = len(spec.feet)
        self._foot_of_geom = np.full(model.ngeom, -1)
        for index, foot in enumerate(spec.feet):
            on_foot = model.geom_bodyid == model.site(foot).bodyid[0]
            self._foot_of_geom[on_foot & _named_foot(model)] = index
        self._is_world = model.geom_bodyid == 0
        floor = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, "floor")
        self.is_flat = floor >= 0
        """Whether the ground is the plane z = 0."""
        sites = [model.site(i) for i in range(model.nsite) if model.site(i).name.startswith("goal_")]
        self.goals_in_world_m = np.array([site.pos for site in sites]).reshape(-1, 3)
        """Shape (goals, 3), places to walk to."""

    def base_pose(self, model: mujoco.MjModel, qpos: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Position (3,), m, and orientation (4,), a unit quaternion, of the base in the world frame."""
        if self.is_free:
            return qpos[:3], qpos[3:7]
        return model.body_pos[self.base].copy(), model.body_quat[self.base].copy()

    def base_velocity(self, qpos: FloatArray, qvel: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Linear and angular velocity, (3,) each, m/s and rad/s, in the base frame; MuJoCo keeps the linear one in
        the world's.
        """
        if not self.is_free:
            return np.zeros(3), np.zeros(3)
        return rotate_into_base(qpos[3:7], qvel[:3]), qvel[3:6].copy()

    def feet_on_ground(self, contact_geoms: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Mask of the feet that touch the world, (feet,), from the pairs of touching shapes (contacts, 2)."""
        touching = np.zeros(self._num_feet, dtype=bool)
        for own, other in ((0, 1), (1, 0)):
            feet = self._foot_of_geom[contact_geoms[:, own]]
            touching[feet[(feet >= 0) & self._is_world[contact_geoms[:, other]]]] = True
        return touching

    def lowest_foot_point_m(self, model: mujoco.MjModel, data: mujoco.MjData) -> float:
        """Height of the lowest point of all feet in the kinematics of ``data``; inf for a robot without feet."""
        feet = np.flatnonzero(self._foot_of_geom >= 0)
        return min((lowest_point_m(model, data, int(geom)) for geom in feet), default=math.inf)

    def put_down_height_m(self, model: mujoco.MjModel, data: mujoco.MjData) -> float:
        """Height by which a robot in the kinematics of ``data`` has to be lifted for its lowest foot to touch the
        ground.
        """
        lowest = self.lowest_foot_point_m(model, data)
        if self.is_flat:
            return -lowest
        feet = data.geom_xpos[self._foot_of_geom >= 0]
        return max(ground_height_m(model, data, foot[:2], _ABOVE_ALL_M) for foot in feet) - lowest


def ground_height_m(model: mujoco.MjModel, data: mujoco.MjData, xy_m: FloatArray, from_z_m: float) -> float:
    """Height of what carries at a place (2,) in the world, looking down from a height, m; -inf for nothing."""
    groups = np.zeros(mujoco.mjNGROUP, np.uint8)
    groups[0] = 1  # gantry_sim.terrains.tile.SOLID_GROUPS, and the floor
    origin = np.array([xy_m[0], xy_m[1], from_z_m], dtype=np.float64)
    distance = mujoco.mj_ray(model, data, origin, np.array([0.0, 0.0, -1.0]), groups, True, -1, np.zeros(1, np.int32))
    return -np.inf if distance < 0.0 else from_z_m - distance


def height_over_ground_m(
    model: mujoco.MjModel, data: mujoco.MjData, pos_base_in_world_m: FloatArray, quat_base_to_world_wxyz: FloatArray
) -> float:
    """Height, m, of a base at (3,), (4,) in the world frame over the ground that it walks on; -inf over nothing.

    That is the median of what carries below the base and below four places where feet are: a block that the robot
    stands astride, as on debris, is no fall.
    """
    x, y, z = pos_base_in_world_m
    w, i, j, k = quat_base_to_world_wxyz
    yaw = math.atan2(2.0 * (w * k + i * j), 1.0 - 2.0 * (j * j + k * k))
    c, s = math.cos(yaw), math.sin(yaw)
    places = [np.array([x + c * ahead - s * left, y + s * ahead + c * left]) for ahead, left in _AROUND_M]
    ground_m = float(np.median([ground_height_m(model, data, place, float(z)) for place in places]))
    return float(z) - ground_m if math.isfinite(ground_m) else -math.inf


def rotate_into_base(quat_base_to_world_wxyz: FloatArray, vector_in_world: FloatArray) -> FloatArray:
    """A world vector (3,) expressed in the base frame whose orientation is the unit quaternion (4,)."""
    # Plain numbers: a control loop at the motors' rate asks for this, and arrays of three take twenty times as long.
    w, x, y, z = quat_base_to_world_wxyz.tolist()
    a, b, c = vector_in_world.tolist()
    twice_x, twice_y, twice_z = 2.0 * (z * b - y * c), 2.0 * (x * c - z * a), 2.0 * (y * a - x * b)
    return np.array(
        [
            a + w * twice_x + (z * twice_y - y * twice_z),
            b + w * twice_y + (x * twice_z - z * twice_x),
            c + w * twice_z + (y * twice_x - x * twice_y),
        ]
    )


def _named_foot(model: mujoco.MjModel) -> NDArray[np.bool_]:
    return np.array(["foot" in model.geom(geom).name for geom in range(model.ngeom)])


def _hang(scene: mujoco.MjSpec, base: mujoco.MjsBody, height_m: float) -> None:
    for child in base.bodies:
        # Shapes of a fixed body and of its children collide, unlike those of a moving one.
        scene.add_exclude(bodyname1=base.name, bodyname2=child.name)
    for joint in list(base.joints):
        scene.delete(joint)
    base.pos = [0.0, 0.0, height_m]

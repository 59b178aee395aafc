"""Parameters of a robot that walks, beside its spec."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_deploy.contract.policy_contract import GaitSpec
from gantry_hardware.model.spec import RobotSpec


@dataclass(frozen=True)
class LeggedRobotCfg:
    """Parameters of the few-sample recipe for one robot."""

    spec: RobotSpec
    """The robot."""
    root_body: str
    """Name of the base body."""
    heavy_body: str
    """Name of the body that carries a payload."""
    foot_geoms: tuple[str, ...]
    """Regular expression of the collision shapes of each foot, in the spec's order."""
    foot_radius_m: float
    """Height of a foot site above the sole."""
    gait: GaitSpec
    """The clock."""
    action_scale: tuple[float, ...]
    """Per joint, rad per unit of action."""
    base_height_m: float
    """Height of the base that the reward asks for."""
    swing_height_m: float
    """Height of the soles in mid-swing that the reward asks for."""
    deviation_weight: tuple[float, ...]
    """Per joint, weight of leaving the default pose."""
    spawn_height_m: float
    """Height of the base at the start of an episode."""
    all_foot_geoms: tuple[str, ...] = ()
    """The same for the full model; empty where it has no more shapes."""
    bandwidth: tuple[float, ...] = ()
    """Per joint, bandwidth of the position loop over that of the spec's gains; empty for the spec's gains. Stiffness
    grows with its square, damping with itself."""

    offset_rad: tuple[float, ...] = ()
    """Per joint, what zero actions add to the default pose; empty for nothing."""

    @property
    def action_offset_rad(self) -> tuple[float, ...]:
        """Per joint, the target at zero action, gait aside."""
        added = self.offset_rad or (0.0,) * self.spec.num_joints
        return tuple(float(angle + more) for angle, more in zip(self.spec.array("default_rad"), added, strict=True))

    @property
    def stiffness_nm_rad(self) -> tuple[float, ...]:
        """Per joint, the proportional gain that the policy is trained with."""
        return self._scaled("stiffness_nm_rad", 2)

    @property
    def damping_nm_s_rad(self) -> tuple[float, ...]:
        """Per joint, the derivative gain that the policy is trained with."""
        return self._scaled("damping_nm_s_rad", 1)

    def _scaled(self, field: str, power: int) -> tuple[float, ...]:
        factors = self.bandwidth or (1.0,) * self.spec.num_joints
        return tuple(float(gain * f**power) for gain, f in zip(self.spec.array(field), factors, strict=True))

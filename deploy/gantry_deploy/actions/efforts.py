"""Network output to joint efforts, written once for training and robot (Array API standard)."""

from __future__ import annotations

from typing import Any

from array_api_compat import device

from gantry_deploy.actions.decoder import JointTargets
from gantry_deploy.contract.mechanism_spec import MechanismSpec
from gantry_deploy.contract.policy_contract import PolicyContract
from gantry_deploy.observations.signals import Signals
from gantry_hardware.model.spec import RobotSpec
from gantry_mapping.elevation.ops import namespace

Array = Any


EDGE_SHARE = 0.05
"""In this share of its range before a limit, a joint is pushed only back into its range."""


class EffortDecoder:
    """Turns actions into efforts of the driven joints, within their limits; remembers nothing.

    A joint close to its limits is not pushed towards them. An effort may change at once from one step to the next, as
    it did in training.

    Args:
        contract: Of a mechanism: scales, limits and driven joints.
        like: Any floating array of the namespace, dtype and device to work on.
        spec: Not looked at: the contract's limits are never beyond a robot's.
    """

    targets = None

    def __init__(self, contract: PolicyContract, like: Array, spec: RobotSpec | None = None) -> None:
        body: MechanismSpec = contract.body
        names, xp = contract.joint_names, namespace(like)

        def asarray(values: Any) -> Array:
            return xp.asarray(values, dtype=like.dtype, device=device(like))

        self._xp = xp
        self._bound = asarray([[contract.action.clip] * contract.action_size])
        # N m or N per unit of action; row: number of the action, column: joint.
        self._scale = asarray(
            [
                [share * limit * (name == joint) for name, limit in zip(names, contract.effort_limit_nm, strict=True)]
                for joint, share in zip(body.driven_joints, contract.action.scale, strict=True)
            ]
        )
        self._limit = asarray([contract.effort_limit_nm])
        lower, upper = asarray([contract.joint_lower_rad]), asarray([contract.joint_upper_rad])
        edge = EDGE_SHARE * (upper - lower)
        self._inner = lower + edge, upper - edge
        self._pos = asarray([contract.default_pos_rad])

    def clip(self, action: Array) -> Array:
        """The action (N, a), dimensionless, within the contract's bounds; this is what ``last_action`` observes."""
        return self._xp.minimum(self._xp.maximum(action, -self._bound), self._bound)

    def reset(self, joint_pos_rad: Array, rows: Array | None = None) -> None:
        """See :meth:`gantry_deploy.actions.decoder.ActionDecoder.reset`; nothing continues from earlier targets."""

    def __call__(self, action: Array, signals: Signals) -> JointTargets:
        """:meth:`efforts` of an action (N, a); positions are those of the default pose, which nothing follows where
        joints have no stiffness."""
        effort = self.efforts(action, signals.joint_pos_rad)
        return JointTargets(pos_rad=self._pos + self._xp.zeros_like(effort), effort_nm=effort)

    def efforts(self, action: Array, joint_pos_rad: Array) -> Array:
        """Efforts (N, n), N m or N, of an action (N, a), dimensionless, at joint positions (N, n), rad or m."""
        effort = self.clip(action) @ self._scale
        pos, (lower, upper), xp = joint_pos_rad, self._inner, self._xp
        least = xp.where(pos <= lower, xp.zeros_like(effort), -self._limit + xp.zeros_like(effort))
        most = xp.where(pos >= upper, xp.zeros_like(effort), self._limit + xp.zeros_like(effort))
        return xp.minimum(xp.maximum(effort, least), most)

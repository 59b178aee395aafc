"""Names of the terms of an observation and of their numbers, for people."""

from __future__ import annotations

from gantry_deploy.contract.policy_contract import ObservationTerm, PolicyContract

_BLOCKS = {"joint_cos_sin": ("cos ", "sin ")}
"""By term with several numbers for each joint: what stands before the joint's name."""


def term_label(term: ObservationTerm) -> str:
    """Name of a term, with its joints where it names them: a contract may have several of one name."""
    return f"{term.name} ({', '.join(term.joints)})" if term.joints else term.name


def labels_of(contract: PolicyContract, term: ObservationTerm) -> list[str]:
    """A name for each number of a term's frame: joints, parts of the command, axes, or places such as ``[3]``."""
    joints = term.joints or contract.joint_names
    blocks = _BLOCKS.get(term.name, ("",))
    if not term.frame and term.size == len(blocks) * len(joints):
        return [block + joint for block in blocks for joint in joints]
    if "command" in term.name and term.size == len(contract.command.names):
        return list(contract.command.names)
    return list("xyz") if term.size == 3 else [f"[{i}]" for i in range(term.size)]

"""Bundles of small arm policies, to be served; without the packages of the extra ``serve`` these tests are left out."""

from dataclasses import replace

import pytest

pytest.importorskip("websockets")
pytest.importorskip("msgpack")
pytest.importorskip("onnx", reason="the small networks are made with it")

from gantry_deploy.contract.parts import MAX_WORDS, ChunkSpec, InstructionSpec
from gantry_deploy.observations.builder import make_term
from gantry_fixtures.arm import arm_bundle, arm_contract_for, with_cameras
from gantry_hardware.robots.yam import SPEC

STEPS = arm_contract_for(SPEC)
"""Asked in every step; sees joints, targets and its last action."""
SEEN = (make_term("joint_pos", 7), make_term("joint_lead", 7))
PLANS = with_cameras(replace(STEPS, observations=SEEN, chunk=ChunkSpec(5, 2)), "wrist", "front", size_px=6)
"""Plans five steps, and sees two cameras."""
CORRECTS = replace(STEPS, chunk=ChunkSpec(5, 2, residual=True))
"""Corrects a plan of five steps, of which two are executed."""


@pytest.fixture(scope="session")
def step_bundle(tmp_path_factory):
    return arm_bundle(tmp_path_factory.mktemp("steps"), STEPS)


@pytest.fixture(scope="session")
def plan_bundle(tmp_path_factory):
    return arm_bundle(tmp_path_factory.mktemp("plans"), PLANS, seed=1)


@pytest.fixture(scope="session")
def residual_bundle(tmp_path_factory):
    return arm_bundle(tmp_path_factory.mktemp("corrects"), CORRECTS, base={"seed": 3}, seed=4)


@pytest.fixture(scope="session")
def told_bundle(tmp_path_factory):
    terms = (*SEEN, make_term("instruction", MAX_WORDS))
    told = InstructionSpec(("blue", "cube", "push", "red", "the"), ("push the red cube",))
    contract = replace(STEPS, observations=terms, chunk=ChunkSpec(5, 2), instruction=told)
    return arm_bundle(tmp_path_factory.mktemp("told"), contract, seed=5)

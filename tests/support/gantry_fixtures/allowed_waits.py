"""Places that may wait for a GPU in a step or an update, each with the reason; whatever else waits fails a test."""

from __future__ import annotations

from gantry_fixtures.one_device import MADE, Allowed

RESETS = "who ends is read once a step, and beginnings are for them alone"
LIBRARY = "the library's own code"
LOG = "numbers of a log, once an iteration"

MANAGED = (
    Allowed("gantry_sim/envs/manager_env.py:step", RESETS),
    Allowed("gantry_sim/envs/manager_env.py:_reset_idx", RESETS, within=True),
)
"""Of all environments with mjlab's managers."""
EVENTS = (Allowed("mjlab/managers/event_manager.py:apply", f"{LIBRARY}: whom an event meets", within=True),)
"""Of those with events in every step or at intervals."""
COMMANDS = (Allowed("mjlab/managers/command_manager.py:compute", f"{LIBRARY}: whose command is drawn", within=True),)
"""Of those with commands."""
RAYS = (Allowed("mjlab/sensor/raycast_sensor.py:_extract_yaw_rotation", f"{LIBRARY}: sensors that point straight up"),)
"""Of those with sensors that cast rays."""
GOAL = (Allowed("tasks/goal/presets.py:step_metrics", "the log's means over a group of terrain, where it has robots"),)
"""Of robots that walk to goals."""
MAPPING = (
    Allowed("tasks/goal/mapping.py:_take", "whose camera has a frame: rendering for all would cost more than the wait"),
    Allowed("gantry_mapping/elevation/elevation_map.py:rows_of", "whose map takes a frame in, as for rendering"),
    Allowed("gantry_mapping/elevation/elevation_map.py:_follow", "whose map has to be moved, which is seldom"),
)
"""Of robots with the mapping pipeline in the loop."""
ARMS = (
    Allowed("gantry_sim/envs/manager_env.py:step", "ended episodes are refused before a step", answer=False),
    Allowed("gantry_sim/envs/step_env.py:step", "who ended, and with success, in one copy a step"),
    Allowed("gantry_sim/envs/step_env.py:_restart", RESETS, within=True),
)
"""Of arms, where episodes end one by one."""
COLUMNS = f"{LIBRARY}: it chooses columns by lists of numbers, a few bytes each"
MJLAB_WALKING = tuple(
    Allowed(f"mjlab/tasks/velocity/mdp/rewards.py:{name}", COLUMNS, kinds=frozenset((MADE,)))
    for name in ("__call__", "feet_clearance", "feet_slip")
)
"""Of mjlab's quadruped that walks."""
MJLAB_SLOPES = (
    Allowed(
        "mjlab/tasks/velocity/mdp/terrain_utils.py:fit_terrain_normal",
        f"{LIBRARY}: the direction upwards, made anew in every step",
        kinds=frozenset((MADE,)),
    ),
)
"""Of its quadruped on rough ground."""
MJLAB_HUMANOID = (
    Allowed("mjlab/tasks/velocity/mdp/rewards.py:body_angular_velocity_penalty", COLUMNS, kinds=frozenset((MADE,))),
)
"""Of its humanoid, beside those of the quadruped."""
MJLAB_CARTPOLE = tuple(
    Allowed(place, COLUMNS, kinds=frozenset((MADE,)))
    for place in (
        "mjlab/tasks/cartpole/cartpole_env_cfg.py:cartpole_smooth_reward",
        "mjlab/tasks/cartpole/cartpole_env_cfg.py:pole_angle_cos_sin",
        "mjlab/envs/mdp/observations.py:joint_pos_rel",
        "mjlab/envs/mdp/observations.py:joint_vel_rel",
    )
)
"""Of its pole on a cart."""
MJLAB_LIFTING = tuple(
    Allowed(f"mjlab/tasks/manipulation/mdp/{place}", COLUMNS, kinds=frozenset((MADE,)))
    for place in ("rewards.py:staged_position_reward", "observations.py:ee_to_object_distance")
)
"""Of its arm."""
CAR_STARTS = (
    Allowed("gantry_sim/driving/env.py:_begin", RESETS, within=True, answer=False),
    Allowed("traffic/traffic.py:reset", "rows of beginnings are judged", answer=False),
)
"""Of cars while they are built, whose conditions are answered."""
DRIVING = (Allowed("gantry_sim/driving/env.py:step", RESETS),)
"""Of cars."""
TRAFFIC = (
    Allowed("traffic/traffic.py:step", "where a road user is to be placed, every third step"),
    Allowed("traffic/traffic.py:_place", "placing one is a beginning, too", within=True),
)
"""Of roads with other users."""
RACING = (
    Allowed("sensors/wall_scan.py:cast_chains", "how many beams the walls cover, once a scan: all pairs are too many"),
)
"""Of cars with a scanner."""
PARKING = (Allowed("drivers/cost_to_go.py:_prepare", "tables of a lot, until those of all lots are made"),)
"""Of car parks."""
PICTURES = (Allowed("gantry_deploy/observations/bev.py:_dots", "torch counts into bins of a number that it reads"),)
"""Of roads that are shown as pictures."""
PPO = (
    Allowed("common/border.py:require_finite", "numbers are judged before they reach statistics, once a step"),
    Allowed("on_policy/trainer.py:_iterate", LOG),
    Allowed("on_policy/trainer.py:<dictcomp>", LOG),
    Allowed("on_policy/trainer.py:_explained", LOG),
    Allowed("on_policy/trainer.py:_check_finite", "weights are judged before they are saved, once an iteration"),
    Allowed("on_policy/ppo.py:<dictcomp>", LOG),
    Allowed("on_policy/ppo.py:_adapt_learning_rate", "the rate is a number of the optimiser, once a minibatch"),
    Allowed("rsl_rl/algorithms/ppo.py:update", f"{LIBRARY}: losses and the divergence, for each minibatch"),
    Allowed("on_policy/teacher_guided.py:_checked", "a teacher's answers are judged, once a batch of them"),
    Allowed("on_policy/teacher_guided.py:_ask", "whether a teacher has answered everything, once an iteration"),
    Allowed("on_policy/teacher_guided.py:act", "where the teacher drives, while it does"),
)
"""Of learners by PPO."""
REPLAY = (
    Allowed("replay/buffer.py:add", "whose frame is stored anew, and how far the ring is filled"),
    Allowed(
        "replay/buffer.py:_draw",
        "slots that hold no transition are drawn again, so that batches are whole",
        answer=False,
    ),
)
"""Of replay buffers, once a step and once a batch."""
COLLECTING = (
    Allowed("common/border.py:require_finite", "numbers are judged before they reach the buffer, once a step"),
    Allowed("collecting/collector.py:step", "actions are judged before they are executed, once a step"),
    Allowed("collecting/collector.py:_count", "who ended, with success and return, in one copy a step"),
)
"""Of collecting for off-policy learners."""
BASE = (Allowed("collecting/collector.py:_base_after", "the base is asked anew where episodes ended", answer=False),)
"""Of collecting with a base policy."""
CLONING = (Allowed("imitation/data.py:chunks", "numbers of the frames of a batch, which are shuffled on the CPU"),)
"""Of cloning."""
CLONING_FROM_CPU = (
    Allowed("imitation/trainer.py:_at_device", "frames of a batch, of data that need not fit a GPU", within=True),
)
"""Of cloning from data in the memory of the CPU."""

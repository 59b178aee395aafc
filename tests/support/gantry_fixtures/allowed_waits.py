"""Places that may wait for a GPU in a step or an update, each with the reason; whatever else waits fails a test."""

from __future__ import annotations

from gantry_fixtures.one_device import Allowed

RESETS = "who ends is read once a step, and beginnings are for them alone"
LIBRARY = "the library's own code"
LOG = "numbers of a log, once an iteration"

MJLAB = (
    Allowed("gantry_sim/envs/manager_env.py:step", RESETS),
    Allowed("gantry_sim/envs/manager_env.py:_reset_idx", RESETS, within=True),
    Allowed("mjlab/managers/event_manager.py:apply", f"{LIBRARY}: whom an event at intervals meets", within=True),
    Allowed("mjlab/managers/command_manager.py:compute", f"{LIBRARY}: whose command is drawn anew", within=True),
    Allowed("mjlab/sensor/raycast_sensor.py:_extract_yaw_rotation", f"{LIBRARY}: sensors that point straight up"),
)
"""Of environments with mjlab's managers."""
GOAL = (
    Allowed("tasks/goal/presets.py:step_metrics", "the log's means over a group of terrain, where it has robots"),
    Allowed("tasks/goal/mapping.py:_take", "whose camera has a frame: rendering for all would cost more than the wait"),
    Allowed("gantry_mapping/elevation/elevation_map.py:rows_of", "whose map takes a frame in, as for rendering"),
    Allowed("gantry_mapping/elevation/elevation_map.py:_follow", "whose map has to be moved, which is seldom"),
)
"""Of robots that walk to goals."""
ARMS = (Allowed("gantry_sim/envs/step_env.py:step", RESETS, within=True),)
"""Of arms, where episodes end one by one."""
DRIVING = (
    Allowed("drivers/cost_to_go.py:_prepare", "tables of a lot, until those of all lots are made"),
    Allowed("gantry_sim/driving/env.py:step", RESETS),
    Allowed("gantry_sim/driving/env.py:_begin", RESETS, within=True, answer=False),
    Allowed("traffic/traffic.py:reset", "rows of beginnings are judged", answer=False),
    Allowed("traffic/traffic.py:step", "where a road user is to be placed, every third step"),
    Allowed("traffic/traffic.py:_place", "placing one is a beginning, too", within=True),
    Allowed("sensors/wall_scan.py:cast_chains", "how many beams the walls cover, once a scan: all pairs are too many"),
    Allowed("gantry_deploy/observations/bev.py:_dots", "torch counts into bins of a number that it reads"),
)
"""Of cars."""
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

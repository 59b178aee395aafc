"""What names, help and refusals need: no learning library and no simulator; what listings say is what tasks are."""

import json
import subprocess
import sys

import pytest

from gantry_hardware.errors import UnknownNameError
from gantry_sim.tasks import catalogue
from gantry_sim.tasks.names import family_of, task_names

HEAVY = ("torch", "mujoco", "mjlab", "rsl_rl", "warp", "tensordict", "gymnasium", "onnxruntime", "matplotlib")
COMMANDS = (
    *("demo", "tasks", "train", "eval", "play", "export", "inspect", "data", "bench", "collect", "map", "sweep"),
    *("check", "run", "launch"),
)


def loaded(*words):
    """(exit code, standard error, heavy modules that were loaded) of a gantry command in a process of its own."""
    code = (
        "import json, sys\nfrom gantry_deploy.cli.main import main\ncode = main(sys.argv[1:])\n"
        f"print(json.dumps([code, [name for name in {HEAVY!r} if name in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=600)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    return code, done.stderr, modules


def test_the_list_of_tasks_and_every_help_load_no_simulator():
    assert loaded("tasks") == (0, "", [])
    assert loaded("--help") == (0, "", [])


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_loads_no_simulator(command):
    code, _, modules = loaded(command, "--help")
    # The runtime's own network runs on robots as well and takes no time.
    assert (code, [name for name in modules if name != "onnxruntime"]) == (0, [])


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("trian",), "Did you mean 'train'?"),
        (("tasks", "velocity-flat-go3"), "Did you mean 'velocity-flat-g"),
        (("tasks", "yam-lift", "--preset", "rlpx"), "Did you mean 'rlpd'?"),
        (("train", "velocity-flat-go2", "--stepz", "3"), "Did you mean '--steps'?"),
        (("train", "velocity-flat-go2", "--preset", "gpx"), "Did you mean 'gpu'?"),
        (("train", "drive-lane", "--preset", "gpu-bew"), "Did you mean 'gpu-bev'?"),
        (("train", "yam-lift", "--preset", "rlpx"), "Did you mean 'rlpd'?"),
        (("sweep", "velocity-flat-go3", "--output", "x"), "Did you mean 'velocity-flat-g"),
        (("collect", "yam-lifd", "--episodes", "2", "--output", "x"), "Did you mean 'yam-lift'?"),
        (("eval", "pretrained:go2-walc"), "Did you mean 'go2-walk'?"),
        (("play", "pretrained:go2-walk", "--second", "3"), "Did you mean '--seconds'?"),
        (("bench", "metadrve"), "Did you mean 'metadrive'?"),
        (("bench", "sim", "--task", "velocity-flat-go3"), "Did you mean 'velocity-flat-g"),
    ],
)
def test_a_mistyped_name_is_refused_without_a_simulator(words, hint):
    code, said, modules = loaded(*words)
    assert (code, [name for name in modules if name != "onnxruntime"]) == (2, [])
    assert hint in said
    assert said.count("\n") == 1


@pytest.mark.slow
def test_what_listings_say_of_tasks_is_what_they_are():
    from gantry_sim.tasks.registry import find_task

    known = catalogue.described()
    # Tasks of a family are told apart from those that are installed, and found by name.
    assert sorted(name for name in known if family_of(name) is None) == task_names()
    for name in task_names():
        task, info = find_task(name), known[name]
        assert (task.name, task.summary, task.robot) == (info.name, info.summary, info.robot)
        assert tuple(task.presets) == info.presets
        assert {getattr(task.preset(preset).env, "robot", info.robot) for preset in task.presets} == {info.robot}


def test_a_task_that_describes_itself_nowhere_is_loaded_for_the_list(monkeypatch):
    own = catalogue.described()
    monkeypatch.setattr(
        catalogue, "described", lambda: {name: info for name, info in own.items() if "lift" not in name}
    )
    assert catalogue.task_infos() == [own[name] for name in sorted(own)]


def test_a_preset_is_asked_for_by_its_task():
    assert catalogue.require_preset("drive-lane", "gpu-bev") == "gpu-bev"
    with pytest.raises(UnknownNameError, match="Available: cpu, cpu-wide, gpu, gpu-wide"):
        catalogue.require_preset("velocity-flat-go2", "gpu-bev")

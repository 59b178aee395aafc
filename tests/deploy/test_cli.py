"""The frame of the ``gantry`` command: discovery, parsing, one-message errors, exit codes, JSON results."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from gantry_deploy.cli import discovery
from gantry_deploy.cli import main as cli
from gantry_deploy.cli.command import (
    Command,
    add_json_option,
    choose,
    jsonable,
    parse_key_value,
    parse_numbers,
    result_so_far,
)
from gantry_deploy.cli.parser import GantryParser, join_negative_lists
from gantry_hardware.errors import GantryError, UnknownNameError


def _add_greet_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("who")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to greet")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--title", default="", help="what to add")
    add_json_option(parser)


def _greet(args: argparse.Namespace) -> dict:
    print(f"hello {args.who}")
    return {"who": args.who, "times": args.times, "speed": np.float32(0.5), "lost": float("nan")}


def _stop(args: argparse.Namespace) -> int:
    raise KeyboardInterrupt


def _swallow(args: argparse.Namespace) -> int:
    """What a callback of ctypes makes of Ctrl-C: an error of its own, which says nothing of where it came from."""
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    raise TypeError("argument 1: KeyboardInterrupt")


def _record(args: argparse.Namespace) -> int:
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        raise GantryError("The recording could not be closed.")


def _stop_later(args: argparse.Namespace) -> int:
    asked = []
    before = signal.signal(signal.SIGINT, lambda *arguments: asked.append(arguments))
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert asked
    raise GantryError("The gate is closed.")


def _lapse(args: argparse.Namespace) -> int:
    raise TypeError("a fault of the program")


def _refuse(args: argparse.Namespace) -> int:
    raise GantryError("The gate is closed; expected an open one.")


def _add_steer_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--command", help="an option that is called as the word that chooses commands")
    sub = parser.add_subparsers(dest="subcommand", parser_class=GantryParser)
    sub.add_parser("left").add_argument("--degrees", type=float)


def _count(args: argparse.Namespace) -> dict:
    found: list[int] = []
    with result_so_far(args, lambda: {"found": found} if found else None):
        found.extend(range(int(args.who)))
        signal.raise_signal(getattr(signal, args.title or "SIGINT"))
    return {"found": found}


def _exhaust(args: argparse.Namespace) -> int:
    raise MemoryError


def _need_torch(args: argparse.Namespace) -> int:
    raise ModuleNotFoundError("No module named 'torch'", name="torch.onnx")


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    return None


GREET = Command("greet", "say hello", _add_greet_arguments, _greet, epilog="example:\n  gantry greet you")
STOP = Command("stop", "be interrupted", _no_arguments, _stop)
REFUSE = Command("refuse", "raise an error", _no_arguments, _refuse)
SWALLOW = Command("swallow", "turn Ctrl-C into an error", _no_arguments, _swallow)
RECORD = Command("record", "fail after Ctrl-C", _no_arguments, _record)
STOP_LATER = Command("stop-later", "have a handler of its own", _no_arguments, _stop_later)
LAPSE = Command("lapse", "have a fault", _no_arguments, _lapse)
NEED_TORCH = Command("need-torch", "import torch late", _no_arguments, _need_torch)
STEER = Command("steer", "have an option --command and words of its own", _add_steer_arguments, lambda args: 0)
COUNT = Command("count", "be stopped with something found", _add_greet_arguments, _count)
EXHAUST = Command("exhaust", "need more memory than there is", _no_arguments, _exhaust)
VERDICT = Command("verdict", "say no", _no_arguments, lambda args: cli.EXIT_NO)
MISNAMED = Command("other", "has another name than its entry point", _no_arguments, lambda args: 0)
NOT_A_COMMAND = 3


@pytest.fixture
def registered(monkeypatch, tmp_path):
    """Entry points as third-party packages would register them: this module's commands, and broken ones."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "late_torch.py").write_text("import torch_that_is_absent\n")
    (tmp_path / "explodes.py").write_text("raise RuntimeError('kaboom')\n")
    (tmp_path / "interrupted.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    pass\n"
        "raise TypeError('argument 1: KeyboardInterrupt')\n"
    )
    (tmp_path / "needs_rsl.py").write_text("raise ModuleNotFoundError(\"No module named 'rsl_rl'\", name='rsl_rl')\n")
    monkeypatch.setitem(sys.modules, "cli_samples", sys.modules[__name__])
    values = {
        "greet": "cli_samples:GREET",
        "stop": "cli_samples:STOP",
        "refuse": "cli_samples:REFUSE",
        "swallow": "cli_samples:SWALLOW",
        "record": "cli_samples:RECORD",
        "stop-later": "cli_samples:STOP_LATER",
        "lapse": "cli_samples:LAPSE",
        "need-torch": "cli_samples:NEED_TORCH",
        "verdict": "cli_samples:VERDICT",
        "steer": "cli_samples:STEER",
        "count": "cli_samples:COUNT",
        "exhaust": "cli_samples:EXHAUST",
        "misnamed": "cli_samples:MISNAMED",
        "three": "cli_samples:NOT_A_COMMAND",
        "exploding": "explodes:COMMAND",
        "absent": "late_torch:COMMAND",
        "trainer": "needs_rsl:COMMAND",
    }
    entries = [EntryPoint(name, value, discovery.GROUP) for name, value in values.items()]
    monkeypatch.setattr(discovery, "entry_points", lambda group: [entry for entry in entries if entry.group == group])
    return entries


def run(capsys, *argv):
    code = cli.main(argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_help_lists_commands_and_says_why_others_are_not_available(registered, capsys):
    code, out, err = run(capsys, "--help")
    assert (code, err) == (0, "")
    assert "say hello" in out
    unavailable = dict(
        line.split(maxsplit=1) for line in out.partition("not available:\n")[2].split("\n\n")[0].splitlines()
    )
    assert unavailable == {
        "misnamed": "'cli_samples:MISNAMED' calls itself 'other'",
        "three": "'cli_samples:NOT_A_COMMAND' is a int, expected a Command",
        "exploding": "'explodes:COMMAND' failed to load: RuntimeError: kaboom",
        "absent": "module 'torch_that_is_absent' is not installed",
        "trainer": "module 'rsl_rl' is not installed; it comes with pip install 'gantry-rl[train]'",
    }


def test_no_arguments_print_the_help(registered, capsys):
    assert run(capsys) == run(capsys, "--help")


def test_a_command_runs_and_its_dict_becomes_json(registered, capsys, tmp_path):
    target = tmp_path / "result.json"
    code, out, _ = run(capsys, "greet", "you", "--times", "2", "--json", str(target))
    assert (code, out) == (0, "hello you\n")
    assert json.loads(target.read_text()) == {"who": "you", "times": 2, "speed": 0.5, "lost": None}


def test_json_on_standard_output_is_alone_there(registered, capsys):
    code, out, err = run(capsys, "greet", "you", "--json", "-")
    assert code == 0
    assert json.loads(out)["who"] == "you"
    assert err == "hello you\n"


def test_json_into_a_missing_folder_is_refused_before_the_work(registered, capsys, tmp_path):
    code, out, err = run(capsys, "greet", "you", "--json", str(tmp_path / "nowhere" / "x.json"))
    assert (code, out) == (2, "")
    assert f"folder '{tmp_path / 'nowhere'}' does not exist" in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("gret",), "Error: Unknown command 'gret'. Did you mean 'greet'? Available: absent, count"),
        (("greet", "you", "--devise", "cpu"), "Unknown option of 'gantry greet' '--devise'. Did you mean '--device'?"),
        (("greet", "you", "--device", "cdua"), "Unknown --device 'cdua'. Did you mean 'cuda'? Available: cpu, cuda."),
        (("greet", "you", "--dev", "cpu"), "Unknown option of 'gantry greet' '--dev'."),
        (("greet",), "The following arguments are required: who. See 'gantry greet --help'."),
        (("greet", "you", "them"), "Unexpected argument 'them'. See 'gantry greet --help'."),
        (("greet", "you", "--times", "x"), "--times is 'x', expected a whole number. See 'gantry greet --help'."),
        (("steer", "--comand=1"), "Unknown option of 'gantry steer' '--comand'. Did you mean '--command'?"),
        (("steer", "--command", "1", "--comand"), "Unknown option of 'gantry steer' '--comand'."),
        (("steer", "left", "--degree=1"), "Unknown option of 'gantry steer left' '--degree'. Did you mean"),
        (("steer", "--command", "1", "left", "on"), "Unexpected argument 'on'. See 'gantry steer left --help'."),
        (("exhaust",), "Error: There is not enough memory."),
        (("--vresion",), "Unknown option of 'gantry' '--vresion'. Did you mean '--version'?"),
        (("refuse",), "Error: The gate is closed; expected an open one."),
        (("exploding",), "Command 'exploding' is not available: 'explodes:COMMAND' failed to load"),
        (("need-torch",), "module 'torch.onnx' is not installed; it comes with pip install 'gantry-rl[train]'."),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(registered, capsys, argv, message):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_ctrl_c_is_a_line_and_130(registered, capsys):
    assert run(capsys, "stop") == (130, "", "Interrupted.\n")


@pytest.mark.parametrize("command", ["swallow", "interrupted"])
def test_ctrl_c_that_comes_out_as_another_error_is_a_line_and_130(registered, capsys, command):
    registered.append(EntryPoint("interrupted", "interrupted:COMMAND", discovery.GROUP))
    before = signal.getsignal(signal.SIGINT)
    assert run(capsys, command) == (130, "", "Interrupted.\n")
    assert signal.getsignal(signal.SIGINT) is before


def test_what_goes_wrong_after_ctrl_c_is_said_too(registered, capsys):
    assert run(capsys, "record") == (130, "", "Error: The recording could not be closed.\nInterrupted.\n")
    code, _, err = run(capsys, "--traceback", "swallow")
    assert (code, "in _swallow" in err) == (130, True)


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_what_was_found_before_ctrl_c_is_written(registered, capsys, tmp_path, number):
    target = tmp_path / "found.json"
    code, _, err = run(capsys, "count", "3", "--title", number, "--json", str(target))
    assert (code, err) == (130, "Interrupted.\n")
    assert json.loads(target.read_text()) == {"found": [0, 1, 2], "interrupted": True}
    code, out, _ = run(capsys, "count", "2", "--json", "-")
    assert (code, json.loads(out)["found"]) == (130, [0, 1])


def test_nothing_is_written_where_nothing_was_found(registered, capsys, tmp_path):
    target = tmp_path / "found.json"
    assert run(capsys, "count", "0", "--json", str(target))[0] == 130
    assert not target.exists()


def test_who_handles_ctrl_c_himself_is_not_interrupted(registered, capsys):
    assert run(capsys, "stop-later") == (2, "", "Error: The gate is closed.\n")


def test_a_fault_of_the_program_keeps_its_traceback(registered):
    with pytest.raises(TypeError, match="a fault of the program"):
        cli.main(["lapse"])


def test_an_integer_is_the_exit_code(registered, capsys):
    assert run(capsys, "verdict") == (1, "", "")


def test_traceback_option_shows_where_an_error_came_from(registered, capsys):
    code, _, err = run(capsys, "--traceback", "refuse")
    assert code == 2
    assert "in _refuse" in err


def test_a_command_explains_itself(registered, capsys):
    code, out, _ = run(capsys, "greet", "--help")
    assert code == 0
    assert "where to greet (default: cpu)" in out
    assert "what to add" in out
    assert "(default: )" not in out
    assert "example:\n  gantry greet you" in out


def test_other_commands_are_not_imported(registered, capsys):
    run(capsys, "greet", "you")
    assert "late_torch" not in sys.modules
    assert "explodes" not in sys.modules


def test_a_name_claimed_twice_belongs_to_gantry(monkeypatch):
    class Own:
        name = discovery.DISTRIBUTION

    class Other:
        name = "aardvark"

    def entry(value, dist):
        made = EntryPoint("greet", value, discovery.GROUP)
        vars(made)["dist"] = dist
        return made

    both = [entry("a:COMMAND", Other()), entry("z:COMMAND", Own())]
    monkeypatch.setattr(discovery, "entry_points", lambda group: both)
    assert discovery.command_entries()["greet"].value == "z:COMMAND"


def test_choose():
    assert choose("task", "b", ["a", "b"]) == "b"
    with pytest.raises(UnknownNameError, match=r"Unknown task 'velocity-flat-go3'\. Did you mean 'velocity-flat-go2'"):
        choose("task", "velocity-flat-go3", iter(["velocity-flat-go2", "velocity-rough-go2"]))


def test_numbers_and_key_values():
    assert parse_numbers("0.5,0,-1e-1") == (0.5, 0.0, -0.1)
    for wrong in ("0.5,zero,1", "nan", "0,,1"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no finite number"):
            parse_numbers(wrong)
    assert parse_key_value("delay_s=0.01") == ("delay_s", 0.01)
    assert parse_key_value("realtime=true") == ("realtime", True)
    assert parse_key_value("scene=a=b") == ("scene", "a=b")
    assert parse_key_value("lerobot-teleop.type=x.y") == ("lerobot-teleop.type", "x.y")
    with pytest.raises(argparse.ArgumentTypeError, match="not of the form key=value"):
        parse_key_value("delay_s")


def test_a_list_that_starts_with_a_minus_belongs_to_its_option():
    assert join_negative_lists(["--command", "-0.5,0,0", "-v"]) == ["--command=-0.5,0,0", "-v"]
    parser = GantryParser(prog="gantry")
    parser.add_argument("--command", type=parse_numbers)
    assert parser.parse_all(["--command", "-.5,0,-1"]).command == (-0.5, 0.0, -1.0)


def test_jsonable():
    value = {"path": Path("a"), "pair": (np.int64(1), None), "array": np.array([[1.0, np.inf]]), "flag": np.bool_(True)}
    assert jsonable(value) == {"path": "a", "pair": [1, None], "array": [[1.0, None]], "flag": True}


def test_installed_command_answers():
    done = subprocess.run([sys.executable, "-m", "gantry_deploy.cli.main", "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("gantry 0.")


def test_output_into_a_closed_pipe_is_quiet():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "gantry_deploy.cli.main", "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")

"""A learner's address, its resumption, and a session's recording are refused before anything is made."""

import socket

import pytest

from gantry_deploy.cli.main import main
from gantry_sim.training.run_files import LINK_FOLDER


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("50051", "The address is '50051', expected host:port"),
        ("0.0.0.0:50051", "give --certificates FOLDER"),
        ("taken", "Address already in use"),
    ],
)
def test_an_address_that_cannot_be_listened_on_leaves_no_run(tmp_path, capsys, address, reason):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        if address == "taken":
            address = f"127.0.0.1:{other.getsockname()[1]}"
        folder = tmp_path / "run"
        assert main(["train", "yam-lift", "--preset", "hil-serl", "--listen", address, "--run-dir", str(folder)]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert "Continue with" not in said
    assert not folder.exists()


def test_a_run_of_actors_is_not_resumed_without_them(tmp_path, capsys):
    (tmp_path / LINK_FOLDER).mkdir()
    assert main(["train", "--resume", str(tmp_path)]) == 2
    assert "learns from actors: give --listen HOST:PORT" in capsys.readouterr().err


def test_a_recording_is_never_overwritten(tmp_path, capsys):
    there = tmp_path / "session.mcap"
    there.write_bytes(b"older")
    assert main(["session", "start", "pretrained:yam-pick-place", "--record", str(there)]) == 2
    assert f"'{there}' exists already" in capsys.readouterr().err
    assert there.read_bytes() == b"older"

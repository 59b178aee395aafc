import shutil

import pytest

from gantry_fixtures.flashing import FlashRobot
from gantry_fixtures.ssh_server import SshServer, find_sshd


def server_kinds():
    kinds = ["sshd"] if find_sshd() else []
    try:
        import asyncssh  # noqa: F401
    except ImportError:
        return kinds
    return [*kinds, "asyncssh"]


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("no OpenSSH client on this machine")
    if not server_kinds():
        pytest.skip("neither sshd nor asyncssh is installed")
    with SshServer(tmp_path_factory.mktemp("ssh"), server_kinds()[0]) as running:
        yield running


@pytest.fixture
def robot(tmp_path, server):
    return FlashRobot(tmp_path, server)

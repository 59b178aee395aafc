"""An SSH server on loopback, with keys of its own: OpenSSH's ``sshd`` where it is installed, else asyncssh.

``python ssh_server.py PORT FOLDER`` is the second one.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

CONNECT_S = 30.0


def find_sshd():
    """Path of OpenSSH's server, or None."""
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    # As root it wants a user and a folder of its own, which a package without its installation does not bring.
    return (
        found
        if found and (os.getuid() or subprocess.run(["getent", "passwd", "sshd"], capture_output=True).stdout)
        else None
    )


class SshServer:
    """A server for the current user, and a client's configuration for it.

    Args:
        folder: For keys and configuration.
        kind: ``sshd`` or ``asyncssh``.
        wrapper: Words that stand before every command that it runs.
    """

    def __init__(self, folder, kind):
        self.folder, self.kind = Path(folder), kind
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        for name in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        shutil.copy(self.folder / "user_key.pub", self.folder / "authorized_keys")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait()

    def client_config(self, port=None, name="ssh_config", identity="user_key"):
        """Path of a configuration for ``ssh -F``; the host is called ``robot``.

        Args:
            port: Of a proxy in front of the server; the server's own if None.
            name: Of the file.
            identity: Name of the key file.
        """
        host_key = (self.folder / "host_key.pub").read_text().split()
        known, path = self.folder / "known_hosts", self.folder / name
        known.write_text(f"robot {host_key[0]} {host_key[1]}\n")
        path.write_text(
            f"Host robot\n HostName 127.0.0.1\n Port {port or self.port}\n User {_user()}\n"
            f" HostKeyAlias robot\n UserKnownHostsFile {known}\n GlobalKnownHostsFile /dev/null\n"
            f" StrictHostKeyChecking yes\n IdentityFile {self.folder / identity}\n IdentitiesOnly yes\n"
            " IdentityAgent none\n BatchMode yes\n LogLevel ERROR\n"
        )
        return str(path)

    def close(self):
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _command(self):
        if self.kind == "asyncssh":
            return [sys.executable, __file__, str(self.port), str(self.folder)]
        if os.getuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        config = self.folder / "sshd_config"
        config.write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {self.folder / 'host_key'}\nPidFile none\n"
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            "MaxStartups 100\nPrintMotd no\n"
        )
        return [find_sshd(), "-D", "-e", "-f", str(config)]

    def _wait(self):
        end_s = time.monotonic() + CONNECT_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.settimeout(CONNECT_S)
                if connection.recv(4) == b"SSH-":
                    return
            assert self._process.poll() is None, f"{self.kind} ended with {self._process.returncode}"
            assert time.monotonic() < end_s, f"{self.kind} does not answer"
            time.sleep(0.05)


def _user():
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


async def _serve(port, folder):
    import asyncssh

    async def run(process):
        # A shell of the user runs what was asked for, as sshd does.
        shell = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            process.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        await process.redirect(stdin=shell.stdin, stdout=shell.stdout, stderr=shell.stderr)
        code = await shell.wait()
        await process.stdout.drain()
        process.exit(code)

    await asyncssh.listen(
        "127.0.0.1",
        port,
        server_host_keys=[str(Path(folder) / "host_key")],
        authorized_client_keys=str(Path(folder) / "authorized_keys"),
        process_factory=run,
        encoding=None,
    )
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2]))

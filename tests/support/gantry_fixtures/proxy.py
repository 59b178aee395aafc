"""A TCP proxy whose connections can be cut, frozen, and refused."""

import contextlib
import select
import socket
import threading


class Proxy:
    """Proxy on loopback in front of an address ``host:port``; threads of its own."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._pairs, self._lock = [], threading.Lock()
        self._is_frozen, self._is_refusing, self._is_ended = False, False, False
        self.accepted, self.passed = 0, 0
        self._left = None
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self):
        """Pass no byte on, in either direction, also on new connections; none is closed."""
        self._is_frozen = True

    def cut_after(self, count):
        """Pass so many further bytes on, both directions counted, and then close all connections for once."""
        self._left = count

    def refuse(self):
        """Close all connections, and each new one at once."""
        self._is_refusing = True
        self._close_all()

    def heal(self):
        """Work again; what was frozen stays lost, as are the connections that it was on."""
        self._close_all()
        self._is_frozen = self._is_refusing = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._is_ended = True
        self._server.close()
        self._close_all()

    def _close_all(self):
        with self._lock:
            for pair in self._pairs:
                for end in pair:
                    with contextlib.suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
            self._pairs.clear()

    def _accept(self):
        while not self._is_ended:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            if self._is_refusing:
                near.close()
                continue
            self.accepted += 1
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.append((near, far))
            threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()

    def _pass_on(self, near, far):
        other = {near: far, far: near}
        try:
            while True:
                for source in select.select([near, far], [], [], 0.2)[0]:
                    data = source.recv(2**16)
                    if not data:
                        return
                    if not self._is_frozen and self._send(other[source], data):
                        return
        except (OSError, ValueError):
            pass
        finally:
            near.close()
            far.close()

    def _send(self, end, data):
        """Send; whether the connection is to be cut now."""
        with self._lock:
            left = self._left
            if left is not None:
                data, self._left = data[:left], left - len(data) if left > len(data) else None
        end.sendall(data)
        self.passed += len(data)
        return left is not None and self._left is None

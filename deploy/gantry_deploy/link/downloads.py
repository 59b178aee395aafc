"""Contents that are fetched piece by piece, and checked before they are used: the bundle, and parameters."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence

from gantry_deploy.errors import LinkError
from gantry_deploy.link.limits import LinkLimits
from gantry_deploy.link.parameters import Parameters, check_data
from gantry_deploy.link.protocol import corrections_pb2 as pb
from gantry_deploy.link.service import IDENTITY, SHA256, Calls, matched

_LOG = logging.getLogger("gantry.link")


class Download:
    """One content on its way; pieces that have come stay when the connection is lost.

    Args:
        content: Name, SHA-256 and size, as announced.
        max_bytes: Largest content.

    Raises:
        LinkError: If what is announced is too large or makes no sense.
    """

    def __init__(self, content: pb.Content, max_bytes: int) -> None:
        self.name = matched("The name of a content", content.name, IDENTITY)
        self.sha256 = matched("sha256", content.sha256, SHA256)
        self._size = content.size
        if self._size > max_bytes:
            raise LinkError(f"'{self.name}' is announced with {self._size} bytes, at most {max_bytes} are taken.")
        self._data = bytearray()
        self.is_gone = False
        """Whether the learner has it no more."""

    def advance(self, call: Calls) -> bytes | None:
        """Fetch the next piece; the whole content after the last one.

        Raises:
            grpc.RpcError: If the learner cannot be reached; another call goes on.
            LinkError: If size or SHA-256 are not those that were announced.
        """
        answer = call(pb.FetchRequest(sha256=self.sha256, offset=len(self._data)), pb.FetchAnswer)
        if not answer.found:
            self.is_gone = True
            return None
        self._data += answer.data
        if answer.size != self._size or len(self._data) > self._size or (not answer.data and self._size):
            raise LinkError(f"'{self.name}' has {answer.size} bytes, and {self._size} were announced.")
        if len(self._data) < self._size:
            return None
        data = bytes(self._data)
        if (found := hashlib.sha256(data).hexdigest()) != self.sha256:
            raise LinkError(f"'{self.name}' has the SHA-256 {found}, announced was {self.sha256}.")
        return data


class BundleDownload:
    """Files of a bundle, one after the other.

    Args:
        contents: Files as announced.
        max_bytes: Largest bundle.
        known: Files that are there already, by name; those with the right SHA-256 are not fetched.

    Raises:
        LinkError: If it is too large, or a name makes no sense or comes twice.
    """

    def __init__(self, contents: Iterable[pb.Content], max_bytes: int, known: dict[str, bytes]) -> None:
        self.files: dict[str, bytes] = {}
        self._open: list[Download] = []
        left = max_bytes
        for content in contents:
            download = Download(content, left)
            left -= content.size
            if download.name in self.files or any(item.name == download.name for item in self._open):
                raise LinkError(f"The bundle has two files '{download.name}'.")
            data = known.get(download.name)
            if data is not None and hashlib.sha256(data).hexdigest() == download.sha256:
                self.files[download.name] = data
            else:
                self._open.append(download)

    @property
    def is_whole(self) -> bool:
        """Whether every file has come."""
        return not self._open

    def advance(self, call: Calls) -> None:
        """Fetch the next piece; see :meth:`Download.advance`.

        Raises:
            LinkError: Also if the learner has a file no more.
        """
        download = self._open[0]
        data = download.advance(call)
        if download.is_gone:
            raise LinkError(f"The learner has the bundle's '{download.name}' no more.")
        if data is not None:
            self.files[download.name] = data
            del self._open[0]


class Downloads:
    """Bundle of the session and newest parameters, one piece at a call; results may be read from any thread.

    Args:
        contract_sha256: SHA-256 of the contract that parameters must belong to.
        limits: Largest contents.
    """

    def __init__(self, contract_sha256: str, limits: LinkLimits) -> None:
        self._contract, self._limits = contract_sha256, limits
        self.bundle: dict[str, bytes] | None = None
        self.parameters: Parameters | None = None
        self._learner, self._bad_sha256 = "", ""
        self._version, self._announced = 0, 0
        self._parts: BundleDownload | None = None
        self._download: Download | None = None

    def begin(self, learner: str, bundle: Sequence[pb.Content]) -> None:
        """Take note of a learner that was joined; versions of another learner count anew.

        Raises:
            LinkError: If the bundle is too large or makes no sense.
        """
        if learner != self._learner:
            self._learner, self._version, self._download = learner, 0, None
        self._parts = BundleDownload(bundle, self._limits.bundle_bytes, self.bundle or {})

    def hear(self, newest: pb.NewestParameters) -> None:
        """Begin to fetch parameters that are newer than those that are there.

        Raises:
            LinkError: If they are too large or make no sense.
        """
        content = newest.content
        if newest.version <= self._version or content.sha256 == self._bad_sha256:
            return
        if self._download is None or self._download.sha256 != content.sha256:
            self._download, self._announced = Download(content, self._limits.parameters_bytes), newest.version

    def advance(self, call: Calls) -> bool:
        """Fetch a piece of the bundle, or of the newest parameters; False if there is nothing to fetch.

        Raises:
            grpc.RpcError: If the learner cannot be reached.
            LinkError: If the bundle is not what was announced; parameters that are not are left out.
        """
        if self._parts is not None:
            if self._parts.is_whole:
                self.bundle, self._parts = self._parts.files, None
            else:
                self._parts.advance(call)
            return True
        if (download := self._download) is None:
            return False
        try:
            data = download.advance(call)
            if data is not None:
                parameters = Parameters(self._announced, download.sha256, data)
                check_data(parameters, self._contract)
                self.parameters, self._version, self._download = parameters, parameters.version, None
                _LOG.info("Parameters %d have come.", parameters.version)
        except LinkError as error:
            self._download, self._bad_sha256 = None, download.sha256
            _LOG.error("Parameters %d are not used: %s", self._announced, error)
        if download.is_gone:
            self._download = None
        return True

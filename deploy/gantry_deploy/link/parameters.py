"""Parameters of the learner in versions: safetensors in memory and on the disk, checked before use."""

from __future__ import annotations

import hashlib
import logging
import re
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gantry_deploy.errors import LinkError
from gantry_hardware.files.json_file import parse_json_object
from gantry_hardware.files.text import names_text, path_text, plain_text
from gantry_hardware.files.whole_files import remove_stale, write_whole

_LOG = logging.getLogger("gantry.link")
HEADER_BYTES = 2**20
"""Largest header of safetensors."""
KINDS = ("F16", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "BOOL")
"""Kinds of numbers in parameters, as safetensors calls them."""
KEPT = 3
"""Versions that stay on the learner's disk."""
_NAME = re.compile(r"(\d{10})\.safetensors")
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Parameters:
    """Weights of one version, as they travelled."""

    version: int
    """Number, from 1, that only rises, also over restarts of the learner."""
    sha256: str
    """SHA-256 of the data in hexadecimal."""
    data: bytes
    """The weights as safetensors, with version and contract in the metadata."""

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Arrays by name, each of any shape and unit, read again at each call.

        Raises:
            LinkError: If the data are no safetensors of this version, or hold numbers that are not finite.
        """
        check_data(self)
        try:
            found = load(self.data)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise LinkError(f"Parameters {self.version} are no safetensors: {error}.") from error
        _check_finite(found, f"parameters {self.version}")
        return found


def pack_parameters(version: int, tensors: Mapping[str, NDArray[Any]], contract_sha256: str) -> Parameters:
    """Parameters of arrays.

    Args:
        version: Number of the version.
        tensors: Arrays by name, of any shape and unit.
        contract_sha256: SHA-256 of the contract of the policy that they belong to.

    Raises:
        LinkError: If there are none, or some are no finite numbers: a learner that diverged must not be followed.
    """
    arrays = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    if not arrays:
        raise LinkError("There are no parameters to publish.")
    if wrong := [name for name, value in arrays.items() if value.dtype.kind not in "fiub"]:
        raise LinkError(f"Parameters that hold no numbers cannot be published: {names_text(wrong)}.")
    _check_finite(arrays, "parameters to publish")
    data = save(arrays, {"version": str(version), "contract_sha256": contract_sha256})
    return Parameters(version, hashlib.sha256(data).hexdigest(), data)


def check_data(parameters: Parameters, contract_sha256: str | None = None) -> None:
    """Refuse data whose SHA-256, header, version or contract are not those that were announced.

    Args:
        parameters: What has come, and what was announced.
        contract_sha256: SHA-256 of the contract that they must belong to; None takes any.

    Raises:
        LinkError: With both sides.
    """
    data, name = parameters.data, f"Parameters {parameters.version}"
    if (found := hashlib.sha256(data).hexdigest()) != parameters.sha256:
        raise LinkError(f"{name} have the SHA-256 {found}, expected {parameters.sha256}.")
    length = _LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH.size else 0
    if not 2 <= length <= min(HEADER_BYTES, len(data) - _LENGTH.size):
        raise LinkError(f"{name} are no safetensors: their header has {length} bytes, of {len(data)} in all.")
    header = parse_json_object(data[_LENGTH.size : _LENGTH.size + length], f"The header of {name}", error=LinkError)
    metadata = header.pop("__metadata__", {})
    kinds = {str(item.get("dtype")) if isinstance(item, dict) else "nothing" for item in header.values()}
    if wrong := kinds - set(KINDS):
        raise LinkError(f"{name} hold numbers of kind {names_text(sorted(wrong))}, expected {names_text(KINDS)}.")
    said = metadata.get("version") if isinstance(metadata, dict) else None
    if said != str(parameters.version):
        raise LinkError(f"{name} say that they are version {plain_text(said)}.")
    if contract_sha256 is not None and metadata.get("contract_sha256") != contract_sha256:
        raise LinkError(
            f"{name} belong to the contract {plain_text(metadata.get('contract_sha256'), 80)}, expected"
            f" '{contract_sha256}'."
        )


class ParametersStore:
    """Versions of a learner's parameters, in a folder.

    Args:
        folder: Created if missing.
        contract_sha256: SHA-256 of the policy's contract.
        max_bytes: Largest parameters.

    Raises:
        LinkError: If the folder cannot be read.
    """

    def __init__(self, folder: Path, contract_sha256: str, max_bytes: int) -> None:
        self._folder, self._contract, self._max_bytes = folder, contract_sha256, max_bytes
        self._lock, self._publishing = threading.Lock(), threading.Lock()
        self._kept: list[Parameters] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            remove_stale(folder)
            found = sorted(int(match[1]) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name)))
        except OSError as error:
            raise LinkError(f"Parameters in {path_text(folder)} cannot be read: {error.strerror}.") from error
        self._version = max(found, default=0)
        for version in reversed(found):
            if (parameters := self._read(version)) is not None:
                self._kept.append(parameters)
                break

    def _read(self, version: int) -> Parameters | None:
        path = self._path(version)
        try:
            if path.stat().st_size > self._max_bytes:
                raise LinkError(f"it has more than {self._max_bytes} bytes")
            data = path.read_bytes()
            parameters = Parameters(version, hashlib.sha256(data).hexdigest(), data)
            check_data(parameters, self._contract)
        except (OSError, LinkError) as error:
            _LOG.error("%s is left out: %s", path_text(path), error)
            return None
        return parameters

    def _path(self, version: int) -> Path:
        return self._folder / f"{version:010d}.safetensors"

    @property
    def newest(self) -> Parameters | None:
        """Newest version; None before the first."""
        with self._lock:
            return self._kept[-1] if self._kept else None

    def publish(self, tensors: Mapping[str, NDArray[Any]]) -> Parameters:
        """Make arrays the newest version, on the disk first; see :func:`pack_parameters`.

        Raises:
            LinkError: If they are refused, too large, or the disk does not take them; the version before stays newest.
        """
        with self._publishing:
            parameters = pack_parameters(self._version + 1, tensors, self._contract)
            if len(parameters.data) > self._max_bytes:
                raise LinkError(f"Parameters have {len(parameters.data)} bytes, at most {self._max_bytes} are sent.")
            try:
                write_whole(self._path(parameters.version), parameters.data)
            except OSError as error:
                raise LinkError(
                    f"Parameters {parameters.version} cannot be written to {path_text(self._folder)}: {error.strerror}."
                ) from error
            self._version = parameters.version
            with self._lock:
                self._kept = [*self._kept, parameters][-2:]
            for version in range(parameters.version - KEPT, 0, -1):
                if not self._path(version).exists():
                    break
                self._path(version).unlink(missing_ok=True)
        return parameters

    def find(self, sha256: str) -> bytes | None:
        """Data of one of the two newest versions, for transfers that began before the newest came; None if gone."""
        with self._lock:
            return next((item.data for item in self._kept if item.sha256 == sha256), None)


def _check_finite(tensors: Mapping[str, NDArray[Any]], what: str) -> None:
    wrong = [name for name, value in tensors.items() if value.dtype.kind == "f" and not np.isfinite(value).all()]
    if wrong:
        raise LinkError(f"Of the {what} these hold numbers that are not finite: {names_text(wrong)}.")

"""Message classes for Cyclone DDS, made from :mod:`gantry_hardware.unitree.layout`.

Octets are declared ``byte``. Declared ``uint8`` they are the same on the wire, but the type description that newer
releases of Cyclone DDS announce would hold a kind that release 0.10 does not know; on receiving it, a program with that
release crashes, and the robot's own programs have it.
"""

from dataclasses import dataclass
from typing import Any

from gantry_hardware.unitree.layout import BYTE, FLOAT32, GO, HG, INT16, INT32, UINT16, UINT32, Struct

try:
    from cyclonedds.idl import IdlStruct, make_idl_struct, types
except ImportError as error:
    raise ImportError(
        f"it needs Cyclone DDS, which is not installed ({error}): pip install 'gantry-rl[unitree]'"
    ) from error

OCTET = getattr(types, "byte", types.uint8)
"""Octet; release 0.10, which knows one kind alone, calls it ``uint8``."""
_KINDS = {
    BYTE: OCTET,
    INT16: types.int16,
    UINT16: types.uint16,
    INT32: types.int32,
    UINT32: types.uint32,
    FLOAT32: types.float32,
}
_made: dict[str, Any] = {}


class Encoded:
    """A message that was received or shall be sent, as bytes with encapsulation; what Cyclone's readers and writers of
    the classes below take and give.
    """

    __slots__ = ("data", "sample_info")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sample_info: Any = None


def _members(struct: Struct) -> dict[str, Any]:
    kinds = {}
    for item in struct.members:
        kind = _KINDS[item.kind] if isinstance(item.kind, str) else _idl_class(item.kind)
        kinds[item.name] = types.array[kind, item.count] if item.count else kind
    return kinds


def _idl_class(struct: Struct) -> Any:
    """The class of a structure, made once."""
    if struct.name not in _made:
        _made[struct.name] = make_idl_struct(struct.name.rpartition(".")[2], struct.name, _members(struct))
    return _made[struct.name]


def _low_level(struct: Struct) -> Any:
    """The class of a message that is encoded and decoded by its layout, thirty times as fast as by Cyclone's classes.

    A sample of it has nothing but ``data``; :class:`IdlStruct` still has the way over the single fields.
    """
    made = _idl_class(struct)
    made.serialize = lambda self, *_, **__: self.data
    made.deserialize = classmethod(lambda cls, data, *_, **__: Encoded(data))
    return made


def message(kind: Any, data: bytes) -> Any:
    """A sample of a low-level class, to be written.

    Args:
        kind: ``GO_STATE``, ``GO_COMMAND``, ``HG_STATE`` or ``HG_COMMAND``.
        data: From :meth:`gantry_hardware.unitree.layout.Layout.encode`.
    """
    sample = object.__new__(kind)
    sample.data = data
    return sample


CLASSES = {family.name: (_low_level(family.state), _low_level(family.command)) for family in (GO, HG)}
"""Family to its class of state and of command."""


NO_BYTES: Any = ()
"""Of a call or an answer without binary data."""


@dataclass
class RequestIdentity(IdlStruct, typename="unitree_api.msg.dds_.RequestIdentity_"):
    """Number of a call, and what is called."""

    id: types.int64
    api_id: types.int64


@dataclass
class RequestLease(IdlStruct, typename="unitree_api.msg.dds_.RequestLease_"):
    """Lease of the caller; not used."""

    id: types.int64


@dataclass
class RequestPolicy(IdlStruct, typename="unitree_api.msg.dds_.RequestPolicy_"):
    """Treatment of a call."""

    priority: types.int32
    noreply: bool


@dataclass
class RequestHeader(IdlStruct, typename="unitree_api.msg.dds_.RequestHeader_"):
    """Head of a call."""

    identity: RequestIdentity
    lease: RequestLease
    policy: RequestPolicy


@dataclass
class Request(IdlStruct, typename="unitree_api.msg.dds_.Request_"):
    """A call of a service of the robot, on ``rt/api/NAME/request``."""

    header: RequestHeader
    parameter: str
    binary: types.sequence[OCTET]


@dataclass
class ResponseStatus(IdlStruct, typename="unitree_api.msg.dds_.ResponseStatus_"):
    """Outcome of a call; 0 for well."""

    code: types.int32


@dataclass
class ResponseHeader(IdlStruct, typename="unitree_api.msg.dds_.ResponseHeader_"):
    """Head of an answer."""

    identity: RequestIdentity
    status: ResponseStatus


@dataclass
class Response(IdlStruct, typename="unitree_api.msg.dds_.Response_"):
    """The answer to a call, on ``rt/api/NAME/response``."""

    header: ResponseHeader
    data: str
    binary: types.sequence[OCTET]

"""Calls of the protocol on gRPC: names, options of channels and servers, and bytes that are checked before parsing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from gantry_deploy.errors import LinkError
from gantry_deploy.link.codec import parse
from gantry_deploy.link.limits import LinkLimits
from gantry_deploy.link.protocol import corrections_pb2 as pb
from gantry_hardware.files.text import plain_text

SERVICE = "/gantry.corrections.v1.Corrections/"
"""Path of the calls."""
REQUESTS: dict[str, type[Message]] = {
    "Join": pb.JoinRequest,
    "SendSteps": pb.SendStepsRequest,
    "Fetch": pb.FetchRequest,
    "Status": pb.StatusRequest,
}
"""Requests by the name of the call."""
ANSWERS: dict[str, type[Message]] = {
    "Join": pb.JoinAnswer,
    "SendSteps": pb.SendStepsAnswer,
    "Fetch": pb.FetchAnswer,
    "Status": pb.StatusAnswer,
}
"""Answers by the name of the call."""
_NAMES = {request: name for name, request in REQUESTS.items()}
IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of actors: they become names of folders and of certificates."""
SOURCE = re.compile(r"[0-9a-f]{16}")
"""Random name of an actor's process."""
SHA256 = re.compile(r"[0-9a-f]{64}")
"""SHA-256 in hexadecimal."""
_IDENTITY_ONLY = 1
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+):(?P<port>\d{1,5})")
A = TypeVar("A", bound=Message)


def host_and_port(address: str) -> tuple[str, int]:
    """Host and port of an address ``host:port`` or ``[ipv6]:port``.

    Raises:
        LinkError: If it is none.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise LinkError(f"The address is {plain_text(address)}, expected host:port, for example 127.0.0.1:7447.")
    return match["host"].strip("[]"), int(match["port"])


def matched(name: str, value: str, pattern: re.Pattern[str]) -> str:
    """A text of the wire that has the form it must have.

    Raises:
        LinkError: If it has not.
    """
    if not pattern.fullmatch(value):
        raise LinkError(f"{name} is {plain_text(value)}, expected {pattern.pattern}.")
    return value


def server_options(limits: LinkLimits) -> list[tuple[str, Any]]:
    """Options of a server: no second one on the same port, bounded messages, nothing compressed."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", limits.message_bytes),
        ("grpc.max_metadata_size", 2**13),
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),  # A small message must not become a large one.
        ("grpc.keepalive_time_ms", 10_000),  # Peers that vanished without a word are found, and their connections end.
        ("grpc.keepalive_timeout_ms", 10_000),
    ]


def channel_options(limits: LinkLimits) -> list[tuple[str, Any]]:
    """Options of a channel: its own connection, bounded messages, early retries."""
    return [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", limits.message_bytes),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
    ]


class Calls:
    """Calls of an actor or an observer, each with a deadline.

    Args:
        channel: Channel to the learner.
        deadline_s: Time for each call.
    """

    def __init__(self, channel: grpc.Channel, deadline_s: float) -> None:
        self._channel, self._deadline_s = channel, deadline_s
        self._stubs: dict[str, Callable[..., bytes]] = {}

    def __call__(self, request: Message, answer: type[A]) -> A:
        """Send a request and wait for its answer.

        Raises:
            grpc.RpcError: If none comes before the deadline, or the server refuses it.
            LinkError: If the answer is none.
        """
        name = _NAMES[type(request)]
        if name not in self._stubs:
            self._stubs[name] = cast(Any, self._channel).unary_unary(SERVICE + name)
        data = self._stubs[name](request.SerializeToString(), timeout=self._deadline_s)
        return parse(answer, data, f"an answer to {name}")


class Handler(grpc.GenericRpcHandler):
    """Dispatch of calls: bytes come in, are parsed within bounds, and an answer leaves as bytes.

    Args:
        answers: Function by the name of the call, from request and context to answer; a :class:`LinkError` of it
            becomes a refusal with its text.
        limits: Deadlines.
        log: Called with the text of each refusal.
    """

    def __init__(
        self,
        answers: dict[str, Callable[[Any, grpc.ServicerContext], Message]],
        limits: LinkLimits,
        log: Callable[[str], None],
    ) -> None:
        self._answers, self._limits, self._log = answers, limits, log

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Function for a call; one that says what this server is for calls that it does not know."""
        name = handler_call_details.method.removeprefix(SERVICE)
        call = self._known(name) if name in self._answers else self._unknown(handler_call_details.method)
        return grpc.unary_unary_rpc_method_handler(call)

    def _known(self, name: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def call(data: bytes, context: grpc.ServicerContext) -> bytes:
            remaining = context.time_remaining()
            most = self._limits.deadline_most_s
            try:
                if remaining is None or remaining > most:
                    raise LinkError(f"{name} has no deadline of at most {most:g} s.")
                if not context.is_active():  # Its caller has gone while it waited for a worker.
                    return b""
                return self._answers[name](parse(REQUESTS[name], data, f"a {name}"), context).SerializeToString()
            except LinkError as error:
                self._log(f"{name} of {context.peer()} is refused: {error}")
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

        return call

    def _unknown(self, method: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def call(data: bytes, context: grpc.ServicerContext) -> bytes:
            text = f"The call {plain_text(method)} does not exist; this is the learner of Gantry's correction sessions."
            self._log(f"{context.peer()}: {text}")
            context.abort(grpc.StatusCode.UNIMPLEMENTED, text)

        return call

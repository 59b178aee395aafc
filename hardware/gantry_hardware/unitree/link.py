"""A DDS participant on one network interface, in one domain."""

from __future__ import annotations

import os
import socket
import uuid
from typing import Any

from gantry_hardware.errors import RobotError, UnknownNameError
from gantry_hardware.files.bounds import whole
from gantry_hardware.unitree import idl  # First, because it says what to install.

# isort: split
from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication, BuiltinTopicDcpsSubscription
from cyclonedds.core import DDSException, DDSStatus, InstanceState, ReadCondition, SampleState, ViewState
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

MAX_DOMAIN = 232
"""Largest DDS domain."""
SETTINGS_VARIABLE = "CYCLONEDDS_URI"
"""Environment variable with further settings of Cyclone DDS; the interface named here comes after them."""
_DEPTH = 64
_ENDPOINTS = 1000
_LOOPBACK = "<Discovery><ParticipantIndex>auto</ParticipantIndex><Peers><Peer address='127.0.0.1'/></Peers></Discovery>"

_domains: dict[int, tuple[str, Any]] = {}
"""Domains that this process has opened: Cyclone configures each of them once."""


def interface_names() -> list[str]:
    """Network interfaces of this machine, sorted."""
    return sorted(name for _, name in socket.if_nameindex())


class Link:
    """Readers and writers on one network interface in one domain.

    Args:
        interface: Network interface, for example ``eth0``; ``lo`` for programs of this machine alone.
        domain: DDS domain; the robots use 0.

    Raises:
        UnknownNameError: If the machine has no such interface.
        RobotError: If no interface is named, the domain does not exist or was opened on another interface, or Cyclone
            refuses.
    """

    def __init__(self, interface: str, domain: int) -> None:
        names = interface_names()
        if not interface:
            raise RobotError(
                f"Name the network interface to the robot (interface=NAME); this machine has {', '.join(names)}."
            )
        if interface not in names:
            raise UnknownNameError("network interface", interface, names)
        whole("The DDS domain", domain, 0, MAX_DOMAIN, RobotError)
        self.text = f"interface '{interface}', DDS domain {domain}"
        """Where this is, for messages."""
        try:
            _open_domain(interface, domain)
            self._participant: Any = DomainParticipant(domain)
        except DDSException as error:
            raise RobotError(f"Cyclone DDS cannot be opened on {self.text}: {error}.") from error
        self._topics: dict[str, Any] = {}
        self._entities: list[Any] = []
        self._endpoints: dict[Any, Any] = {}

    def reader(self, topic: str, kind: Any, *, reliable: bool = False) -> Any:
        """A reader of what others write; what this link writes itself is left out.

        Args:
            topic: For example ``rt/lowstate``.
            kind: Class of its messages, from :mod:`gantry_hardware.unitree.idl`.
            reliable: Ask for lost messages again, as calls need.
        """
        reliability = Policy.Reliability.Reliable(0) if reliable else Policy.Reliability.BestEffort
        qos = Qos(reliability, Policy.History.KeepLast(_DEPTH), Policy.IgnoreLocal.Participant)
        return self._keep(DataReader(self._participant, self._topic(topic, kind), qos))

    def writer(self, topic: str, kind: Any, *, depth: int = 1) -> Any:
        """A writer that never waits; the last ``depth`` messages are sent again to readers that missed them."""
        qos = Qos(Policy.Reliability.Reliable(0), Policy.History.KeepLast(depth))
        return self._keep(DataWriter(self._participant, self._topic(topic, kind), qos))

    @property
    def key(self) -> str:
        """This link's participant, as others see it."""
        return _key(self._participant.guid)

    def prepare(self, topic: str, kind: Any) -> None:
        """Do what takes long in making a reader or a writer: some 50 ms, once for each kind of message."""
        self._topic(topic, kind)

    def reader_keys(self, topic: str) -> list[str]:
        """Participants elsewhere that read a topic, by their keys, sorted."""
        return sorted(_key(one.participant_key) for one in self._announced(BuiltinTopicDcpsSubscription, topic))

    def has_changed(self, reader: Any) -> bool:
        """Whether writers that one of this link's readers hears have come or gone since the last call."""
        return bool(reader.take_status(DDSStatus.SubscriptionMatched))

    def writers(self, reader: Any) -> list[str]:
        """Writers that one of this link's readers hears, as texts; they need not have written anything yet."""
        if hasattr(reader, "get_matched_publications"):
            told = [reader.get_matched_publication_data(handle) for handle in reader.get_matched_publications()]
        else:  # Release 0.10 tells of all writers, this link's own among them.
            told = self._announced(BuiltinTopicDcpsPublication, reader.topic.name)
        keys = ("unknown" if one is None else _key(one.participant_key) for one in told)
        return sorted(f"participant {key}" for key in keys)

    def close(self) -> None:
        """Leave the domain; may be called twice."""
        entities, self._entities = self._entities, []
        self._topics = {}
        for entity in reversed(entities):
            entity.__del__()
        if self._participant is not None:
            self._participant.__del__()
            self._participant = None

    def _announced(self, kind: Any, topic: str) -> list[Any]:
        """Readers or writers of a topic that others announce."""
        if kind not in self._endpoints:
            self._endpoints[kind] = self._keep(BuiltinDataReader(self._participant, kind))
        alive = ReadCondition(self._endpoints[kind], ViewState.Any | SampleState.Any | InstanceState.Alive)
        own = self._participant.guid
        told = self._endpoints[kind].read(_ENDPOINTS, condition=alive)
        return [one for one in told if one.topic_name == topic and one.participant_key != own]

    def _topic(self, name: str, kind: Any) -> Any:
        if name not in self._topics:
            self._topics[name] = self._keep(Topic(self._participant, name, kind))
        return self._topics[name]

    def _keep(self, entity: Any) -> Any:
        self._entities.append(entity)
        return entity


def _key(guid: Any) -> str:
    """A participant's identifier, shortened."""
    return uuid.UUID(str(guid)).hex[:12]


def take(reader: Any) -> list[Any]:
    """Messages that have arrived, oldest first; notices that a writer has gone are left out."""
    return [
        sample for sample in reader.take(_DEPTH) if sample.sample_info is not None and sample.sample_info.valid_data
    ]


def send(writer: Any, kind: Any, data: bytes) -> None:
    """Write an encoded low-level message.

    Raises:
        RobotError: If Cyclone refuses.
    """
    try:
        writer.write(idl.message(kind, data))
    except DDSException as error:
        raise RobotError(f"Cyclone DDS sends nothing: {error}.") from error


def _open_domain(interface: str, domain: int) -> None:
    if domain in _domains:
        opened = _domains[domain][0]
        if opened != interface:
            raise RobotError(
                f"This process has opened DDS domain {domain} on interface '{opened}' and cannot open it on "
                f"'{interface}' as well; start another process."
            )
        return
    own = (
        "<CycloneDDS><Domain id='any'><General><Interfaces>"
        f"<NetworkInterface name='{interface}'/></Interfaces></General>{_LOOPBACK if interface == 'lo' else ''}"
        "</Domain></CycloneDDS>"
    )
    further = os.environ.get(SETTINGS_VARIABLE, "")
    _domains[domain] = (interface, Domain(domain, f"{further},{own}" if further else own))

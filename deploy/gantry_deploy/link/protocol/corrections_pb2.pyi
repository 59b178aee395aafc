from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED: _ClassVar[Verdict]
    ACCEPTED: _ClassVar[Verdict]
    JOIN_FIRST: _ClassVar[Verdict]
    REPLACED: _ClassVar[Verdict]
    REFUSED: _ClassVar[Verdict]
    WAIT: _ClassVar[Verdict]
    BAD_STEP: _ClassVar[Verdict]
UNSPECIFIED: Verdict
ACCEPTED: Verdict
JOIN_FIRST: Verdict
REPLACED: Verdict
REFUSED: Verdict
WAIT: Verdict
BAD_STEP: Verdict

class Array(_message.Message):
    __slots__ = ("dtype", "shape", "data")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class NamedArray(_message.Message):
    __slots__ = ("name", "array")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    name: str
    array: Array
    def __init__(self, name: _Optional[str] = ..., array: _Optional[_Union[Array, _Mapping]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("episode", "index", "stamp_s", "obs", "action", "policy_action", "actor", "reward", "penalty", "terminated", "truncated", "success", "base_action", "last_obs", "last_base_action", "parameters_version")
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    STAMP_S_FIELD_NUMBER: _ClassVar[int]
    OBS_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    POLICY_ACTION_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    PENALTY_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    BASE_ACTION_FIELD_NUMBER: _ClassVar[int]
    LAST_OBS_FIELD_NUMBER: _ClassVar[int]
    LAST_BASE_ACTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_VERSION_FIELD_NUMBER: _ClassVar[int]
    episode: int
    index: int
    stamp_s: float
    obs: _containers.RepeatedCompositeFieldContainer[NamedArray]
    action: Array
    policy_action: Array
    actor: str
    reward: float
    penalty: float
    terminated: bool
    truncated: bool
    success: bool
    base_action: Array
    last_obs: _containers.RepeatedCompositeFieldContainer[NamedArray]
    last_base_action: Array
    parameters_version: int
    def __init__(self, episode: _Optional[int] = ..., index: _Optional[int] = ..., stamp_s: _Optional[float] = ..., obs: _Optional[_Iterable[_Union[NamedArray, _Mapping]]] = ..., action: _Optional[_Union[Array, _Mapping]] = ..., policy_action: _Optional[_Union[Array, _Mapping]] = ..., actor: _Optional[str] = ..., reward: _Optional[float] = ..., penalty: _Optional[float] = ..., terminated: _Optional[bool] = ..., truncated: _Optional[bool] = ..., success: _Optional[bool] = ..., base_action: _Optional[_Union[Array, _Mapping]] = ..., last_obs: _Optional[_Iterable[_Union[NamedArray, _Mapping]]] = ..., last_base_action: _Optional[_Union[Array, _Mapping]] = ..., parameters_version: _Optional[int] = ...) -> None: ...

class NumberedStep(_message.Message):
    __slots__ = ("number", "step")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    number: int
    step: bytes
    def __init__(self, number: _Optional[int] = ..., step: _Optional[bytes] = ...) -> None: ...

class Content(_message.Message):
    __slots__ = ("name", "sha256", "size")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    size: int
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class NewestParameters(_message.Message):
    __slots__ = ("version", "content")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    version: int
    content: Content
    def __init__(self, version: _Optional[int] = ..., content: _Optional[_Union[Content, _Mapping]] = ...) -> None: ...

class Facts(_message.Message):
    __slots__ = ("updates", "updates_per_s", "transitions", "corrections", "text")
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    UPDATES_PER_S_FIELD_NUMBER: _ClassVar[int]
    TRANSITIONS_FIELD_NUMBER: _ClassVar[int]
    CORRECTIONS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    updates: int
    updates_per_s: float
    transitions: int
    corrections: int
    text: str
    def __init__(self, updates: _Optional[int] = ..., updates_per_s: _Optional[float] = ..., transitions: _Optional[int] = ..., corrections: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("protocol", "identity", "source", "contract_sha256", "left_sources")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_SHA256_FIELD_NUMBER: _ClassVar[int]
    LEFT_SOURCES_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    identity: str
    source: str
    contract_sha256: str
    left_sources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, protocol: _Optional[int] = ..., identity: _Optional[str] = ..., source: _Optional[str] = ..., contract_sha256: _Optional[str] = ..., left_sources: _Optional[_Iterable[str]] = ...) -> None: ...

class Received(_message.Message):
    __slots__ = ("source", "number")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    source: str
    number: int
    def __init__(self, source: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class JoinAnswer(_message.Message):
    __slots__ = ("verdict", "text", "protocol", "contract_sha256", "learner", "received", "facts", "newest", "bundle")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_SHA256_FIELD_NUMBER: _ClassVar[int]
    LEARNER_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    text: str
    protocol: int
    contract_sha256: str
    learner: str
    received: _containers.RepeatedCompositeFieldContainer[Received]
    facts: Facts
    newest: NewestParameters
    bundle: _containers.RepeatedCompositeFieldContainer[Content]
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., text: _Optional[str] = ..., protocol: _Optional[int] = ..., contract_sha256: _Optional[str] = ..., learner: _Optional[str] = ..., received: _Optional[_Iterable[_Union[Received, _Mapping]]] = ..., facts: _Optional[_Union[Facts, _Mapping]] = ..., newest: _Optional[_Union[NewestParameters, _Mapping]] = ..., bundle: _Optional[_Iterable[_Union[Content, _Mapping]]] = ...) -> None: ...

class SendStepsRequest(_message.Message):
    __slots__ = ("identity", "source", "steps_source", "steps", "applied_version", "applied_sha256", "waiting")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    STEPS_SOURCE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_VERSION_FIELD_NUMBER: _ClassVar[int]
    APPLIED_SHA256_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    identity: str
    source: str
    steps_source: str
    steps: _containers.RepeatedCompositeFieldContainer[NumberedStep]
    applied_version: int
    applied_sha256: str
    waiting: int
    def __init__(self, identity: _Optional[str] = ..., source: _Optional[str] = ..., steps_source: _Optional[str] = ..., steps: _Optional[_Iterable[_Union[NumberedStep, _Mapping]]] = ..., applied_version: _Optional[int] = ..., applied_sha256: _Optional[str] = ..., waiting: _Optional[int] = ...) -> None: ...

class SendStepsAnswer(_message.Message):
    __slots__ = ("verdict", "text", "acknowledged", "wait_s", "facts", "newest", "bad_number")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    BAD_NUMBER_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    text: str
    acknowledged: int
    wait_s: float
    facts: Facts
    newest: NewestParameters
    bad_number: int
    def __init__(self, verdict: _Optional[_Union[Verdict, str]] = ..., text: _Optional[str] = ..., acknowledged: _Optional[int] = ..., wait_s: _Optional[float] = ..., facts: _Optional[_Union[Facts, _Mapping]] = ..., newest: _Optional[_Union[NewestParameters, _Mapping]] = ..., bad_number: _Optional[int] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("sha256", "offset")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    offset: int
    def __init__(self, sha256: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class FetchAnswer(_message.Message):
    __slots__ = ("found", "size", "data")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    found: bool
    size: int
    data: bytes
    def __init__(self, found: _Optional[bool] = ..., size: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ActorStatus(_message.Message):
    __slots__ = ("identity", "source", "age_s", "steps", "missing", "waiting", "applied_version", "applied_sha256")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    APPLIED_VERSION_FIELD_NUMBER: _ClassVar[int]
    APPLIED_SHA256_FIELD_NUMBER: _ClassVar[int]
    identity: str
    source: str
    age_s: float
    steps: int
    missing: int
    waiting: int
    applied_version: int
    applied_sha256: str
    def __init__(self, identity: _Optional[str] = ..., source: _Optional[str] = ..., age_s: _Optional[float] = ..., steps: _Optional[int] = ..., missing: _Optional[int] = ..., waiting: _Optional[int] = ..., applied_version: _Optional[int] = ..., applied_sha256: _Optional[str] = ...) -> None: ...

class StatusAnswer(_message.Message):
    __slots__ = ("protocol", "contract_sha256", "learner", "facts", "newest", "actors", "journal_bytes", "delivered", "trouble")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_SHA256_FIELD_NUMBER: _ClassVar[int]
    LEARNER_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    ACTORS_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    contract_sha256: str
    learner: str
    facts: Facts
    newest: NewestParameters
    actors: _containers.RepeatedCompositeFieldContainer[ActorStatus]
    journal_bytes: int
    delivered: int
    trouble: str
    def __init__(self, protocol: _Optional[int] = ..., contract_sha256: _Optional[str] = ..., learner: _Optional[str] = ..., facts: _Optional[_Union[Facts, _Mapping]] = ..., newest: _Optional[_Union[NewestParameters, _Mapping]] = ..., actors: _Optional[_Iterable[_Union[ActorStatus, _Mapping]]] = ..., journal_bytes: _Optional[int] = ..., delivered: _Optional[int] = ..., trouble: _Optional[str] = ...) -> None: ...

class SpoolHeader(_message.Message):
    __slots__ = ("identity", "source", "contract_sha256", "address", "order")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_SHA256_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    identity: str
    source: str
    contract_sha256: str
    address: str
    order: int
    def __init__(self, identity: _Optional[str] = ..., source: _Optional[str] = ..., contract_sha256: _Optional[str] = ..., address: _Optional[str] = ..., order: _Optional[int] = ...) -> None: ...

class JournalHeader(_message.Message):
    __slots__ = ("learner", "contract_sha256", "sources")
    LEARNER_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_SHA256_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    learner: str
    contract_sha256: str
    sources: _containers.RepeatedCompositeFieldContainer[SourceState]
    def __init__(self, learner: _Optional[str] = ..., contract_sha256: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[SourceState, _Mapping]]] = ...) -> None: ...

class SourceState(_message.Message):
    __slots__ = ("source", "identity", "highest", "steps", "replaced", "joined")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    source: str
    identity: str
    highest: int
    steps: int
    replaced: bool
    joined: int
    def __init__(self, source: _Optional[str] = ..., identity: _Optional[str] = ..., highest: _Optional[int] = ..., steps: _Optional[int] = ..., replaced: _Optional[bool] = ..., joined: _Optional[int] = ...) -> None: ...

class JournalRecord(_message.Message):
    __slots__ = ("identity", "source", "steps")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    identity: str
    source: str
    steps: _containers.RepeatedCompositeFieldContainer[NumberedStep]
    def __init__(self, identity: _Optional[str] = ..., source: _Optional[str] = ..., steps: _Optional[_Iterable[_Union[NumberedStep, _Mapping]]] = ...) -> None: ...

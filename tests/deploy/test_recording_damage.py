"""Recordings that were damaged on a disk or on purpose: what is read is right, and says where it ends."""

from __future__ import annotations

import itertools
import secrets
import struct
import zlib

import lz4.frame
import numpy as np
import pytest
from mcap.opcode import Opcode
from mcap.stream_reader import StreamReader
from mcap.writer import CompressionType, Writer

from gantry_deploy.control.loop import Controller
from gantry_deploy.control.safety import SafetyConfig, SafetyMachine
from gantry_deploy.errors import RecordingError
from gantry_deploy.policy.runner import PolicyRunner
from gantry_deploy.recording.reader import METADATA, Recording, sealed
from gantry_deploy.recording.recorder import Recorder, read_recording
from gantry_deploy.testing.legs import contract_for, tiny_bundle, tiny_robot
from gantry_hardware.backends.mock import MockRobot

SPEC = tiny_robot()
CONTRACT = contract_for(SPEC)
MUTATIONS = 240


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A recording of several chunks: its bytes and what is in it."""
    folder = tmp_path_factory.mktemp("recording")
    with Recorder(folder / "run.mcap", CONTRACT, SPEC, chunk_bytes=4 * 1024, lossless=True) as recorder:
        robot = MockRobot(SPEC, joint_pos_rad=np.array([0.0, 0.1, 0.2, 0.3]))
        robot.connect()
        runner = PolicyRunner(tiny_bundle(folder / "bundle"), SPEC)
        loop = Controller(robot, runner, SafetyMachine(SPEC, SafetyConfig(stand_duration_s=0.1)), recorder)
        loop.run(0.1)
        loop.request("stand")
        loop.run(0.2)
        loop.request("start")
        loop.run(0.7, lambda t: (0.5, -0.1, t))
    recording = read_recording(folder / "run.mcap")
    assert recording.complete
    assert recording.damage == ""
    return (folder / "run.mcap").read_bytes(), recording


def records_of(data):
    """Type, begin and end of every record."""
    position, found = 8, []
    while position + 9 <= len(data) - 8:
        opcode, length = struct.unpack_from("<BQ", data, position)
        found.append((opcode, position, position + 9 + length))
        position += 9 + length
    return found


def outcome(path, data, reference):
    """How a file is read: ``refused``, ``partial`` or ``right``; anything else fails."""
    path.write_bytes(data)
    try:
        found = read_recording(path)
    except RecordingError:
        return "refused"
    assert (found.robot, found.joint_names, found.contract) == ("tiny", SPEC.joint_names, CONTRACT)
    assert set(found.topics) <= set(reference.topics)
    for topic, columns in found.topics.items():
        assert set(columns) == set(reference[topic])
        for name, values in columns.items():
            np.testing.assert_array_equal(values, reference[topic][name][: len(values)], err_msg=f"{topic} {name}")
    lengths = {topic: len(columns["time_s"]) for topic, columns in found.topics.items()}
    same = lengths == {topic: len(columns["time_s"]) for topic, columns in reference.topics.items()}
    assert found.complete == (found.damage == "")
    assert same or not found.complete
    return "right" if found.complete else "partial"


@pytest.mark.slow
def test_two_hundred_and_forty_damaged_recordings_give_right_numbers_or_none(whole, tmp_path):
    data, reference = whole
    seed = secrets.randbits(32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    counts = {"refused": 0, "partial": 0, "right": 0}
    for number in range(MUTATIONS):
        broken, at = bytearray(data), int(rng.integers(len(data)))
        size = int(rng.integers(1, 3000))
        match number % 8:
            case 0 | 1:
                broken[at] ^= 1 << int(rng.integers(8))
            case 2:
                broken[at] = int(rng.integers(256))
            case 3:
                broken[at : at + size] = bytes(len(broken[at : at + size]))
            case 4:
                broken[at:] = bytes(int(rng.integers(3 * len(data))))
            case 5:
                broken[at : at + size] = rng.bytes(len(broken[at : at + size]))
            case 6:
                del broken[at : at + size]
            case 7:
                broken[at:at] = broken[at : at + size]
        counts[outcome(tmp_path / "broken.mcap", bytes(broken), reference)] += 1
    print(counts)
    assert sum(counts.values()) == MUTATIONS
    assert counts["partial"] > MUTATIONS // 2
    assert counts["right"] <= MUTATIONS // 8, "nearly every byte of a file counts"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Opcode.HEADER, Opcode.CHUNK, Opcode.MESSAGE_INDEX, Opcode.METADATA, Opcode.DATA_END])
def test_a_changed_byte_anywhere_in_a_record_of_the_data_is_noticed(whole, tmp_path, kind):
    data, reference = whole
    begin, end = next((begin, end) for opcode, begin, end in records_of(data) if opcode == kind)
    # Every byte of what is around the content, and every twentieth of it.
    for at in [*range(begin, min(begin + 50, end)), *range(begin + 50, end, max(1, (end - begin) // 20)), end - 1]:
        broken = bytearray(data)
        broken[at] ^= 1 << (at % 8)
        assert outcome(tmp_path / "broken.mcap", bytes(broken), reference) in ("refused", "partial"), at


@pytest.mark.slow
def test_a_changed_byte_anywhere_in_the_index_is_noticed_and_costs_no_number(whole, tmp_path):
    data, reference = whole
    begin = next(end for opcode, _, end in records_of(data) if opcode == Opcode.DATA_END)
    for at in [*range(begin, len(data) - 40, 331), *range(len(data) - 40, len(data))]:
        broken = bytearray(data)
        broken[at] ^= 0x10
        (tmp_path / "broken.mcap").write_bytes(broken)
        found = read_recording(tmp_path / "broken.mcap")
        # Zero stands for "no checksum" and "no index", which a flipped bit does not make of any of ours.
        assert not found.complete, at
        assert found.duration_s == reference.duration_s


@pytest.mark.parametrize("kind", ["doubled", "left out", "exchanged"])
def test_whole_chunks_in_a_wrong_place_are_noticed(whole, tmp_path, kind):
    data, reference = whole
    begins = [begin for opcode, begin, _ in records_of(data) if opcode == Opcode.CHUNK]
    assert len(begins) > 8
    first, second, third = (data[begin:end] for begin, end in itertools.pairwise(begins[-5:-1]))
    middle = {"doubled": first + first + second + third, "left out": first + third, "exchanged": second + first + third}
    broken = data[: begins[-5]] + middle[kind] + data[begins[-2] :]
    assert outcome(tmp_path / "broken.mcap", broken, reference) == "partial"
    found = read_recording(tmp_path / "broken.mcap")
    assert "follows tick" in found.damage
    # What stands before the damage is read.
    assert 0 < found.duration_s < reference.duration_s


def test_zeros_at_the_end_keep_what_was_whole_and_say_where(whole, tmp_path, caplog):
    data, reference = whole
    chunks = [(begin, end) for opcode, begin, end in records_of(data) if opcode == Opcode.CHUNK]
    cut = chunks[len(chunks) // 2][1]
    for name, broken in {
        "cut": data[:cut],
        "in the middle of a record": data[: cut + 4],
        "zeros": data[:cut] + bytes(65536),
        "zeros in a record": data[: cut - 100] + bytes(65536),
    }.items():
        caplog.clear()
        assert outcome(tmp_path / "broken.mcap", broken, reference) == "partial", name
        found = read_recording(tmp_path / "broken.mcap")
        assert 0.3 * reference.duration_s < found.duration_s < 0.8 * reference.duration_s
        assert f"of {len(broken)}: " in found.damage
        assert found.damage in caplog.text, "everyone who reads a damaged recording hears of it"
    assert "zeros" in read_recording_after(tmp_path, data[:cut] + bytes(65536)).damage
    assert f"at byte {cut} " in read_recording_after(tmp_path, data[:cut]).damage


def read_recording_after(folder, data):
    (folder / "broken.mcap").write_bytes(data)
    return read_recording(folder / "broken.mcap")


def test_a_bad_block_in_the_middle_ends_the_recording_there(whole, tmp_path):
    """What follows is intact, and left out: a hole would make differences between rows that never were."""
    data, reference = whole
    chunks = [(begin, end) for opcode, begin, end in records_of(data) if opcode == Opcode.CHUNK]
    begin, end = chunks[len(chunks) // 2]
    broken = data[: begin + 60] + bytes(end - begin - 60) + data[end:]
    assert outcome(tmp_path / "broken.mcap", broken, reference) == "partial"
    found = read_recording(tmp_path / "broken.mcap")
    assert f"at byte {begin} of " in found.damage
    until_s = found["/gantry/status"]["time_s"][-1]
    assert until_s < 0.8 * reference["/gantry/status"]["time_s"][-1]


def test_either_description_of_a_recording_is_enough(whole, tmp_path):
    data, reference = whole
    places = [(begin, end) for opcode, begin, end in records_of(data) if opcode == Opcode.METADATA]
    assert len(places) == 2
    for begin, end in places:
        broken = bytearray(data)
        broken[(begin + end) // 2] ^= 1
        assert outcome(tmp_path / "broken.mcap", bytes(broken), reference) == "partial"
        found = read_recording(tmp_path / "broken.mcap")
        assert found.duration_s == reference.duration_s
        assert found.damage.startswith(f"at byte {begin} ")
        assert "metadata" in found.damage
        places_of_both = bytearray(broken)
    for begin, end in places:
        places_of_both[(begin + end) // 3] ^= 1
    assert outcome(tmp_path / "broken.mcap", bytes(places_of_both), reference) == "refused"


def test_every_checksum_is_written(whole):
    data, _ = whole
    records = records_of(data)
    for opcode, begin, _ in records:
        if opcode == Opcode.CHUNK:
            assert struct.unpack_from("<I", data, begin + 9 + 24)[0] != 0
    begin = next(begin for opcode, begin, _ in records if opcode == Opcode.DATA_END)
    assert struct.unpack_from("<I", data, begin + 9)[0] == zlib.crc32(data[:begin])
    assert struct.unpack_from("<I", data, len(data) - 12)[0] != 0


def test_another_reader_finds_every_checksum_right(whole, tmp_path):
    data, _ = whole
    (tmp_path / "run.mcap").write_bytes(data)
    with (tmp_path / "run.mcap").open("rb") as stream:
        assert sum(1 for _ in StreamReader(stream, validate_crcs=True).records) > 400


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD])
def test_a_recording_that_another_tool_has_written_anew_is_read(whole, tmp_path, compression):
    data, reference = whole
    (tmp_path / "run.mcap").write_bytes(data)
    schemas, channels = {0: 0}, {}
    with (tmp_path / "run.mcap").open("rb") as stream, (tmp_path / "other.mcap").open("wb") as output:
        writer = Writer(output, compression=compression, enable_crcs=False)
        writer.start("ros2", "another")
        for record in StreamReader(stream).records:
            match type(record).__name__:
                case "Schema" if record.id not in schemas:
                    schemas[record.id] = writer.register_schema(record.name, record.encoding, record.data)
                case "Channel" if record.id not in channels:
                    channels[record.id] = writer.register_channel(
                        record.topic, record.message_encoding, schemas[record.schema_id], record.metadata
                    )
                case "Message":
                    writer.add_message(
                        channels[record.channel_id], record.log_time, record.data, record.publish_time, record.sequence
                    )
                case "Metadata":
                    writer.add_metadata(record.name, record.metadata)
        writer.add_attachment(0, 0, "notes", "text/plain", b"a walk in the lab")
        writer.finish()
    written = (tmp_path / "other.mcap").read_bytes()
    assert outcome(tmp_path / "other.mcap", written, reference) == "right"
    broken = bytearray(written)
    broken[written.index(b"in the lab")] ^= 1
    assert outcome(tmp_path / "broken.mcap", bytes(broken), reference) == "partial"
    assert "attachment" in read_recording(tmp_path / "broken.mcap").damage


def forged(path, messages, *, compression=CompressionType.ZSTD, metadata=None, change=None):
    """A file whose checksums are right and whose content is not; ``messages`` are topic, type, definition and data."""
    with path.open("wb") as output:
        writer = Writer(output, compression=compression)
        writer.start("ros2", "forger")
        info = {"format": "2", "robot": "tiny", "joint_names": "a,b", "clock_offset_ns": "0", "contract": ""}
        writer.add_metadata(METADATA, sealed({**info, **(metadata or {})}))
        for topic, kind, definition, data, log_time in messages:
            schema = writer.register_schema(kind, "ros2msg", definition.encode())
            writer.add_message(writer.register_channel(topic, "cdr", schema), log_time, data, log_time)
        writer.finish()
    return path


DATA = ("std_msgs/msg/Float32MultiArray", "uint32 unused\nfloat32[] data\n")


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(("/cmd_vel", *DATA, b"\0\1\0\0" + bytes(8), 1), id="another type"),
        pytest.param(("/policy/action", *DATA, b"\0\1\0\0" + struct.pack("<II", 0, 2**31), 1), id="too long an array"),
        pytest.param(("/policy/action", *DATA, b"", 1), id="empty"),
        pytest.param(("/policy/action", DATA[0], "no[definition", b"\0\1\0\0" + bytes(8), 1), id="no definition"),
        pytest.param(("/policy/action", DATA[0], "\udcff".encode(errors="ignore"), b"", 1), id="no text"),
        pytest.param(("/policy/action", *DATA, b"\0\1\0\0" + bytes(8), 2**64 - 1), id="after the end of time"),
    ],
)
def test_a_message_that_cannot_be_decoded_ends_the_recording(tmp_path, message):
    if isinstance(message[2], bytes):
        message = (*message[:2], "\N{DEVANAGARI OM}[", *message[3:])
    good = ("/policy/command", *DATA, b"\0\1\0\0" + struct.pack("<IIf", 0, 1, 0.5), 1)
    found = read_recording(forged(tmp_path / "run.mcap", [good, message, good]))
    assert not found.complete
    assert "cannot be read" in found.damage
    np.testing.assert_array_equal(found["/policy/command"]["data"], [[0.5]])


def test_rows_of_several_sizes_are_an_array_of_arrays(tmp_path):
    rows = [("/policy/action", *DATA, b"\0\1\0\0" + struct.pack(f"<II{n}f", 0, n, *range(n)), n) for n in (2, 3)]
    found = read_recording(forged(tmp_path / "run.mcap", rows))
    assert found.complete
    assert [row.tolist() for row in found["/policy/action"]["data"]] == [[0.0, 1.0], [0.0, 1.0, 2.0]]


@pytest.mark.parametrize(
    "metadata", [{"clock_offset_ns": "soon"}, {"clock_offset_ns": "9" * 30}, {"contract": "[" * 99}]
)
def test_metadata_that_make_no_sense_are_refused(tmp_path, metadata):
    with pytest.raises(RecordingError, match="metadata"):
        read_recording(forged(tmp_path / "run.mcap", [], metadata=metadata))


def chunk(compression, packed, size, crc=0):
    body = struct.pack("<QQQII", 0, 0, size, crc, len(compression)) + compression + struct.pack("<Q", len(packed))
    return struct.pack("<BQ", Opcode.CHUNK, len(body) + len(packed)) + body + packed


def test_a_chunk_that_unpacks_to_gigabytes_is_refused_unread(whole, tmp_path):
    import zstandard

    data, _ = whole
    zeros = bytes(2**26)
    bombs = [
        chunk(b"zstd", zstandard.compress(zeros), 100),
        chunk(b"zstd", zstandard.compress(zeros), 2**62),
        chunk(b"lz4", lz4.frame.compress(zeros), 100),
    ]
    for bomb in bombs:
        (tmp_path / "bomb.mcap").write_bytes(data[:8] + bomb)
        with pytest.raises(RecordingError) as refused:
            read_recording(tmp_path / "bomb.mcap")
        assert "holds" in str(refused.value) or "unpacks to" in str(refused.value)


def test_a_recording_without_messages_says_so_and_not_that_a_topic_is_unknown(tmp_path):
    with pytest.raises(RecordingError, match=r"walk\.mcap holds no messages: its writer ended before the first ones"):
        Recording(tmp_path / "walk.mcap", "go2", (), None, False)["/gantry/status"]


def test_a_chunk_whose_type_is_damaged_leaves_no_hole(whole, tmp_path):
    """Whatever type a chunk becomes, what is read ends before it."""
    data, reference = whole
    chunks, position = [], 8
    while data[position] != Opcode.DATA_END:
        if data[position] == Opcode.CHUNK:
            chunks.append(position)
        position += 9 + struct.unpack_from("<Q", data, position + 1)[0]
    assert len(chunks) > 9
    for place in chunks[:10]:
        for kind in (0x01, 0x04, 0x07, 0x08, 0x09, 0x0C, 0x0E, 0x80, 0x86, 0xFF):
            broken = bytearray(data)
            broken[place] = kind
            assert outcome(tmp_path / "broken.mcap", bytes(broken), reference) in ("refused", "partial"), (place, kind)

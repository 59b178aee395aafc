"""Bags that real writers have written: the ``mcap`` package, ``rosbags`` where it is installed, and ``sqlite3``."""

import sqlite3

import numpy as np
import pytest
from mcap.writer import CompressionType, Writer
from mcap_ros2._dynamic import serialize_dynamic

pytest.importorskip("pyarrow")
pytest.importorskip("av")

from gantry_deploy.dataset.bags.definitions import known_definition, parsable

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
"""Time of the first message, ns."""


def ns(seconds):
    return START + round(seconds * SECOND)


def stamp(time_ns):
    return {"sec": time_ns // SECOND, "nanosec": time_ns % SECOND}


def encoded(kind, message):
    name, text = parsable(kind, known_definition(kind))
    return serialize_dynamic(name, text)[name](message)


def joints(time_ns, names, position, velocity=(), effort=()):
    return {
        "header": {"stamp": stamp(time_ns), "frame_id": ""},
        "name": list(names),
        "position": list(position),
        "velocity": list(velocity),
        "effort": list(effort),
    }


def picture(time_ns, value, height=8, width=12, encoding="rgb8", channels=3):
    return {
        "header": {"stamp": stamp(time_ns), "frame_id": "camera"},
        "height": height,
        "width": width,
        "encoding": encoding,
        "is_bigendian": 0,
        "step": width * channels,
        "data": np.full(height * width * channels, value, np.uint8).tobytes(),
    }


JOINTS, IMAGE = "sensor_msgs/msg/JointState", "sensor_msgs/msg/Image"
ARRAY, BOOL, STRING = "std_msgs/msg/Float64MultiArray", "std_msgs/msg/Bool", "std_msgs/msg/String"


def array(values):
    return {"layout": {"dim": [], "data_offset": 0}, "data": [float(value) for value in values]}


def write_mcap(path, messages, **options):
    """An MCAP file of (topic, type, log time in ns, message) in the order given."""
    with open(path, "wb") as stream:
        writer = Writer(stream, **{"compression": CompressionType.ZSTD, "chunk_size": 4096, **options})
        writer.start(profile="ros2", library="test")
        channels = {}
        for topic, kind, time_ns, message in messages:
            if topic not in channels:
                schema = writer.register_schema(kind, "ros2msg", known_definition(kind).encode())
                channels[topic] = writer.register_channel(topic, "cdr", schema)
            data = message if isinstance(message, bytes) else encoded(kind, message)
            writer.add_message(channels[topic], time_ns, data, time_ns)
        writer.finish()
    return path


def write_sqlite(path, messages, *, definitions=False):
    """A .db3 file with the tables of rosbag2, with definitions (since Iron) or without."""
    base = sqlite3.connect(path)
    base.execute(
        "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL, "
        "serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL)"
    )
    base.execute(
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL, "
        "data BLOB NOT NULL)"
    )
    if definitions:
        base.execute(
            "CREATE TABLE message_definitions(id INTEGER PRIMARY KEY, topic_type TEXT NOT NULL, encoding TEXT, "
            "encoded_message_definition TEXT NOT NULL, type_description_hash TEXT NOT NULL)"
        )
    numbers = {}
    for topic, kind, time_ns, message in messages:
        if topic not in numbers:
            numbers[topic] = len(numbers) + 1
            base.execute("INSERT INTO topics VALUES (?, ?, ?, 'cdr', '')", (numbers[topic], topic, kind))
            if definitions:
                text = known_definition(kind)
                base.execute("INSERT INTO message_definitions VALUES (NULL, ?, 'ros2msg', ?, '')", (kind, text))
        data = message if isinstance(message, bytes) else encoded(kind, message)
        base.execute("INSERT INTO messages VALUES (NULL, ?, ?, ?)", (numbers[topic], time_ns, data))
    base.commit()
    base.close()
    return path


def arm(seconds=2.0, rate=20, camera_rate=10, start=0.0):
    """Messages of an arm: two joints that count up, commands, a camera whose grey level counts up."""
    messages = []
    for index in range(round(seconds * rate) + 1):
        at = ns(start + index / rate)
        messages.append(("/joint_states", JOINTS, at, joints(at, ("b", "a"), (10 + index, index))))
        messages.append(("/command", ARRAY, at, array((0.5 * index, -index))))
    for index in range(round(seconds * camera_rate) + 1):
        at = ns(start + index / camera_rate)
        messages.append(("/camera/front/image_raw", IMAGE, at, picture(at, 5 * index % 250)))
    return sorted(messages, key=lambda item: item[2])


MAPPING = {
    "fps": 10,
    "robot": "arm",
    "task": "pick",
    "features": {
        "observation.state": {"topic": "/joint_states", "joints": ["a", "b"], "unit": "rad"},
        "observation.images.front": "/camera/front/image_raw",
        "action": "/command.data",
    },
}


@pytest.fixture
def make():
    """The writers and makers of messages."""

    class Make:
        pass

    for name in ("ns", "joints", "picture", "array", "write_mcap", "write_sqlite", "arm", "encoded", "stamp"):
        setattr(Make, name, staticmethod(globals()[name]))
    Make.JOINTS, Make.IMAGE, Make.ARRAY, Make.BOOL, Make.STRING = JOINTS, IMAGE, ARRAY, BOOL, STRING
    Make.MAPPING, Make.SECOND = MAPPING, SECOND
    return Make

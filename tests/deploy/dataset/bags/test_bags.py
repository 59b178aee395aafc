"""Bags of several storages, writers and ages; damaged, cut and hostile ones; and mistakes in a mapping."""

import contextlib
import sqlite3
import struct

import numpy as np
import pytest
import yaml
import zstandard
from mcap.writer import CompressionType

from gantry_deploy.cli.main import main
from gantry_deploy.dataset import Dataset
from gantry_deploy.dataset.bags.bag import Bag
from gantry_deploy.dataset.bags.config import bag_cfg
from gantry_deploy.dataset.bags.convert import convert_bags
from gantry_deploy.dataset.bags.definitions import Decoders, known_definition
from gantry_deploy.dataset.bags.fields import parse_path
from gantry_deploy.dataset.bags.messages import BagError, Topic
from gantry_deploy.dataset.bags.sqlite_file import SqliteFile
from gantry_deploy.dataset.bags.suggest import suggested, topic_facts
from gantry_deploy.dataset.checks.check import check_dataset
from gantry_deploy.errors import DatasetError
from gantry_hardware.errors import GantryError, UnknownNameError

STATE, ACTION, FRONT = "observation.state", "action", "observation.images.front"


def frames(folder):
    dataset = Dataset(folder)
    assert check_dataset(folder) == []
    return [dataset.frames(i) for i in range(dataset.num_episodes)]


def folder_of(tmp_path, files, **facts):
    """A rosbag2 folder of files that are there already."""
    folder = tmp_path / "bag"
    folder.mkdir(exist_ok=True)
    for file in files:
        file.rename(folder / file.name)
    told = {"version": 9, "relative_file_paths": [file.name for file in files], "compression_mode": "", **facts}
    (folder / "metadata.yaml").write_text(yaml.safe_dump({"rosbag2_bagfile_information": told}))
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {"compression": CompressionType.NONE},
        {"compression": CompressionType.LZ4},
        {"use_chunking": False},
        {"enable_crcs": False},
        {"enable_data_crcs": True},
    ],
)
def test_files_of_every_kind_of_mcap(make, tmp_path, options):
    bag = make.write_mcap(tmp_path / "bag.mcap", make.arm(0.5), **options)
    done = convert_bags([bag], tmp_path / "d", bag_cfg(make.MAPPING))
    assert (done.frames, done.notes) == (6, ())


@pytest.mark.parametrize("definitions", [True, False])
def test_sqlite_bags_with_and_without_definitions(make, tmp_path, definitions):
    messages = make.arm(1.0)
    cut = len(messages) // 2
    files = [
        make.write_sqlite(tmp_path / f"bag_{i}.db3", part, definitions=definitions)
        for i, part in enumerate((messages[:cut], messages[cut:]))
    ]
    convert_bags([folder_of(tmp_path, files)], tmp_path / "d", bag_cfg(make.MAPPING))
    reference = make.write_mcap(tmp_path / "bag.mcap", messages)
    convert_bags([reference], tmp_path / "e", bag_cfg(make.MAPPING))
    for name, values in frames(tmp_path / "e")[0].items():
        np.testing.assert_array_equal(frames(tmp_path / "d")[0][name], values)


def test_bags_of_rosbags(make, tmp_path):
    """Written by another program, as MCAP and as SQLite, with a type of its own."""
    rosbag2 = pytest.importorskip("rosbags.rosbag2")
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    store.register(get_types_from_msg("float64[] values\nbool done\n", "lab_msgs/msg/Wanted"))
    joint_type, own = store.types["sensor_msgs/msg/JointState"], store.types["lab_msgs/msg/Wanted"]
    header, time = store.types["std_msgs/msg/Header"], store.types["builtin_interfaces/msg/Time"]
    for plugin in (rosbag2.StoragePlugin.MCAP, rosbag2.StoragePlugin.SQLITE3):
        bag = tmp_path / plugin.name
        with rosbag2.Writer(bag, version=9, storage_plugin=plugin) as writer:
            states = writer.add_connection("/joint_states", joint_type.__msgtype__, typestore=store)
            wanted = writer.add_connection("/wanted", own.__msgtype__, typestore=store)
            for index in range(11):
                at = make.ns(index / 10)
                none = np.zeros(0)
                message = joint_type(
                    header(time(at // 10**9, at % 10**9), ""), ["a"], np.array([float(index)]), none, none
                )
                writer.write(states, at, store.serialize_cdr(message, joint_type.__msgtype__))
                message = own(np.array([2.0 * index, 1.0]), index > 4)
                writer.write(wanted, at, store.serialize_cdr(message, own.__msgtype__))
        features = {STATE: "/joint_states", ACTION: "/wanted.values", "next.done": "/wanted.done"}
        convert_bags([bag], tmp_path / f"d-{plugin.name}", bag_cfg({"fps": 10, "features": features}))
        found = frames(tmp_path / f"d-{plugin.name}")[0]
        assert found[STATE][:, 0].tolist() == list(range(6))
        assert found[ACTION][:, 0].tolist() == [2 * i for i in range(6)]
        assert found["next.done"].ravel().tolist() == [False] * 5 + [True]  # Which ends the episode.
    assert sorted(path.suffix for path in (tmp_path / "SQLITE3").iterdir()) == [".db3", ".yaml"]


def test_compressed_messages(make, tmp_path):
    packed = [(*item[:3], zstandard.compress(make.encoded(item[1], item[3]))) for item in make.arm(0.5)]
    file = make.write_mcap(tmp_path / "bag_0.mcap", packed)
    folder = folder_of(tmp_path, [file], compression_mode="MESSAGE", compression_format="zstd")
    assert convert_bags([folder], tmp_path / "d", bag_cfg(make.MAPPING)).frames == 6
    folder_of(tmp_path, [], relative_file_paths=["bag_0.mcap"], compression_mode="FILE", compression_format="zstd")
    with pytest.raises(BagError, match="compressed as a whole"):
        Bag(folder)


def test_pictures_of_every_encoding(make, tmp_path):
    import av

    from gantry_deploy.dataset.video import encode_png

    red = np.zeros((8, 12, 3), np.uint8)
    red[..., 0] = 200
    jpeg = av.CodecContext.create("mjpeg", "w")
    jpeg.width, jpeg.height, jpeg.pix_fmt = 12, 8, "yuvj444p"
    from fractions import Fraction

    jpeg.time_base = Fraction(1, 10)
    shot = av.VideoFrame.from_ndarray(red, format="rgb24").reformat(format="yuvj444p")
    shot.pts = 0
    photo = b"".join(bytes(part) for part in [*jpeg.encode(shot), *jpeg.encode(None)])
    packed, raw = "sensor_msgs/msg/CompressedImage", make.IMAGE
    kinds = {}
    for name, data in (("png", encode_png(red)), ("jpeg", photo)):
        kinds[name] = (
            packed,
            lambda at, name=name, data=data: {
                "header": {"stamp": make.stamp(at), "frame_id": ""},
                "format": name,
                "data": data,
            },
        )
    for name, pixel in (
        ("rgb8", (200, 0, 0)),
        ("bgr8", (0, 0, 200)),
        ("rgba8", (200, 0, 0, 9)),
        ("bgra8", (0, 0, 200, 9)),
    ):
        data = np.tile(np.array(pixel, np.uint8), (8, 12, 1))
        padded = np.concatenate((data.reshape(8, -1), np.full((8, 5), 77, np.uint8)), axis=1)  # Rows may be longer.
        kinds[name] = (
            raw,
            lambda at, name=name, padded=padded: (
                make.picture(at, 0, encoding=name) | {"step": padded.shape[1], "data": padded.tobytes()}
            ),
        )
    messages, features = [], {STATE: "/joint_states"}
    for name, (kind, build) in kinds.items():
        features[f"observation.images.{name}"] = f"/{name}"
        messages += [(f"/{name}", kind, make.ns(i / 10), build(make.ns(i / 10))) for i in range(3)]
    messages += [item for item in make.arm(0.2) if item[0] == "/joint_states"]
    messages.sort(key=lambda item: item[2])
    bag = make.write_mcap(tmp_path / "bag.mcap", messages)
    convert_bags([bag], tmp_path / "d", bag_cfg({"fps": 10, "features": features, "lossless": True}))
    for name in kinds:
        found = Dataset(tmp_path / "d").images(0, f"observation.images.{name}")
        assert found.shape == (3, 8, 12, 3)
        np.testing.assert_allclose(found[1], red, atol=4, err_msg=name)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"encoding": "16UC1"}, "encoded as '16UC1'"),
        ({"step": 3}, "rows of 3"),
        ({"data": b"abc"}, "has 3 bytes"),
        ({"height": 2**31, "width": 2**31}, "pixels, expected"),
    ],
)
def test_pictures_that_make_no_sense(make, tmp_path, changes, said):
    messages = make.arm(0.5)
    messages = [(*item[:3], item[3] | changes if item[1] == make.IMAGE else item[3]) for item in messages]
    bag = make.write_mcap(tmp_path / "bag.mcap", messages)
    with pytest.raises(GantryError, match=said):
        convert_bags([bag], tmp_path / "d", bag_cfg(make.MAPPING))
    assert not (tmp_path / "d").exists()


def test_pictures_are_scaled(make, tmp_path):
    bag = make.write_mcap(tmp_path / "bag.mcap", make.arm(0.5))
    features = {**make.MAPPING["features"], FRONT: {"topic": "/camera/front/image_raw", "height": 4, "width": 6}}
    convert_bags([bag], tmp_path / "d", bag_cfg({**make.MAPPING, "features": features}))
    assert Dataset(tmp_path / "d").images(0, FRONT).shape == (6, 4, 6, 3)


def test_a_bag_ends_at_its_first_damage(make, tmp_path):
    bag = make.write_mcap(tmp_path / "bag.mcap", make.arm(4.0))
    whole = bag.read_bytes()
    for name, data in (("cut", whole[: len(whole) // 2]), ("flipped", bytearray(whole))):
        if name == "flipped":
            chunk = [place for place in range(len(data)) if data[place : place + 4] == b"\x28\xb5\x2f\xfd"][3]
            data[chunk + 40] ^= 0xFF
        path = tmp_path / f"{name}.mcap"
        path.write_bytes(data)
        done = convert_bags([path], tmp_path / name, bag_cfg(make.MAPPING))
        assert "ends at its first damage" in done.notes[0]
        found = frames(tmp_path / name)[0][STATE]
        assert 5 < len(found) < 41
        np.testing.assert_array_equal(found[:, 0], 2 * np.arange(len(found)))


def test_what_lies_behind_damage_is_left_out(make, tmp_path):
    files = [make.write_mcap(tmp_path / f"bag_{i}.mcap", make.arm(1.0, start=i)) for i in (0, 1, 10)]
    files[1].write_bytes(files[1].read_bytes()[:-200])
    folder = folder_of(tmp_path, files)
    (folder / "metadata.yaml").unlink()
    assert [file.path.name for file in Bag(folder)._files] == ["bag_0.mcap", "bag_1.mcap", "bag_10.mcap"]
    done = convert_bags([folder], tmp_path / "d", bag_cfg(make.MAPPING))
    told = " ".join(done.notes)
    assert "no metadata.yaml" in told
    assert "bag_1.mcap" in told
    assert "1 later files are left out" in told


def test_a_damaged_sqlite_bag(make, tmp_path):
    path = make.write_sqlite(tmp_path / "bag_0.db3", make.arm(20.0))
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 8192] = b"\xff" * 8192
    path.write_bytes(data)
    done = convert_bags([path], tmp_path / "d", bag_cfg(make.MAPPING))
    assert "ends at its first damage" in done.notes[0]
    assert 10 < done.frames < 201
    (tmp_path / "no.db3").write_bytes(b"no data base, " * 100)
    with pytest.raises(BagError, match="cannot be read as a bag"):
        Bag(tmp_path / "no.db3").topics()
    sqlite3.connect(tmp_path / "other.db3").execute("CREATE TABLE x(y)")
    with pytest.raises(BagError, match="no table topics"):
        Bag(tmp_path / "other.db3").topics()


def test_a_sqlite_message_that_is_too_large_is_not_read(make, tmp_path, monkeypatch):
    path = make.write_sqlite(tmp_path / "bag_0.db3", make.arm(2.0))
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        last = base.execute("SELECT max(id) FROM messages").fetchone()[0]
        base.execute("UPDATE messages SET data = zeroblob(100001) WHERE id = ?", (last // 2,))
    monkeypatch.setattr("gantry_deploy.dataset.bags.sqlite_file.LARGEST_MESSAGE_BYTES", 100_000)
    file = SqliteFile(path)
    assert len(list(file.messages())) == last // 2 - 1
    assert file.damage


def test_a_message_that_is_none_ends_the_bag(make, tmp_path):
    messages = make.arm(2.0)
    middle = next(i for i, item in enumerate(messages) if i > len(messages) // 2 and item[0] == "/command")
    messages[middle] = (*messages[middle][:3], b"\x00\x01\x00\x00\x01")
    bag = make.write_mcap(tmp_path / "bag.mcap", messages)
    done = convert_bags([bag], tmp_path / "d", bag_cfg(make.MAPPING))
    assert "a message of '/command' cannot be decoded" in done.notes[0]
    assert done.frames == 11


def test_types_without_a_safe_length_are_refused(make):
    text = "Id[] ids\n" + "=" * 80 + "\nMSG: evil_msgs/Id\nuint8[16] uuid\n"
    topic = Topic("/x", "evil_msgs/msg/Ids", text)
    with pytest.raises(BagError, match="no safe length"):
        Decoders().of(topic)
    fine = Topic("/x", "evil_msgs/msg/Ids", text.replace("uint8[16]", "int64[16]"))
    with pytest.raises(struct.error):
        Decoders().of(fine)(b"\x00\x01\x00\x00" + b"\xff" * 4)


def test_unknown_types_are_named(make, tmp_path):
    assert known_definition("lab_msgs/msg/Wanted") is None
    assert known_definition("../../etc/passwd") is None
    path = make.write_sqlite(tmp_path / "bag.db3", make.arm(0.2))
    base = sqlite3.connect(path)
    base.execute("UPDATE topics SET type = 'lab_msgs/msg/Wanted' WHERE name = '/command'")
    base.commit()
    with pytest.raises(BagError, match=r"no definition of lab_msgs/msg/Wanted"):
        convert_bags([path], tmp_path / "d", bag_cfg(make.MAPPING))
    facts, _ = topic_facts(path)
    assert "no definition" in next(item.obstacle for item in facts if item.name == "/command")


def test_mistakes_in_a_mapping(make, tmp_path):
    bag = make.write_mcap(tmp_path / "bag.mcap", make.arm(0.5))
    own = make.MAPPING["features"]
    wrong = [
        ({"features": {**own, ACTION: "/comand.data"}}, "Did you mean '/command'"),
        ({"features": {**own, ACTION: "/command.dta"}}, "Did you mean 'data'"),
        ({"features": {**own, ACTION: "/command.data[7]"}}, r"2 numbers where the path asks for \[7\]"),
        (
            {"features": {**own, STATE: {"topic": "/joint_states", "joints": ["a", "bb"]}}},
            "Unknown joint of '/joint_states' 'bb'",
        ),
        ({"features": {**own, STATE: {"topic": "/joint_states", "joint": ["a"]}}}, "Did you mean 'joints'"),
        ({"features": {**own, ACTION: {"topic": "/command", "joints": ["a"]}}}, "names no joints"),
        ({"features": {**own, STATE: "/joint_states.velocity"}}, "none with finite numbers"),
        ({"features": {**own, FRONT: ["/camera/front/image_raw", "/command"]}}, "expected one camera"),
        ({"features": {}}, "No feature"),
        ({"fps": 0}, "fps"),
        ({"stale": "slit"}, "Did you mean 'split'"),
        ({"episodes": {"by": "event"}}, "Did you mean 'events'"),
        ({"episodes": {"by": "events", "start": "/begin"}}, "Unknown topic"),
        ({"episodes": {"by": "topic"}}, "give episodes.topic"),
        ({"features": {ACTION: "command"}}, "begins with '/'"),
    ]
    for changes, said in wrong:
        with pytest.raises((UnknownNameError, BagError), match=said):
            convert_bags([bag], tmp_path / "d", bag_cfg({**make.MAPPING, **changes}))
    (tmp_path / "d").mkdir()
    with pytest.raises(DatasetError, match="exists already"):
        convert_bags([bag], tmp_path / "d", bag_cfg(make.MAPPING))


def test_paths_of_fields():
    assert parse_path("pose.position[2].x") == ("pose", "position", 2, "x")
    assert parse_path("data[1:3]") == ("data", slice(1, 3))
    assert parse_path("[0]") == (0,)
    for text in ("a b", "data[", "data[-1]", "data[x]", "__import__('os')", ".."):
        with pytest.raises(BagError, match="no path"):
            parse_path(text)


def test_files_outside_of_a_bag_are_not_opened(make, tmp_path):
    make.write_mcap(tmp_path / "other.mcap", make.arm(0.2))
    folder = folder_of(tmp_path, [], relative_file_paths=["../other.mcap"])
    with pytest.raises(BagError, match="expected one in the bag's folder"):
        Bag(folder)


def test_a_suggested_mapping_fits(make, tmp_path, capsys):
    bag = make.write_mcap(tmp_path / "bag.mcap", make.arm(1.0))
    path = tmp_path / "map.yaml"
    assert main(["data", "topics", str(bag), "--write", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "# /joint_states            sensor_msgs/msg/JointState" in printed
    assert "20.0 Hz" in printed
    assert yaml.safe_load(path.read_text()) == yaml.safe_load(printed)
    assert yaml.safe_load(printed)["features"] == {
        STATE: {"topic": "/joint_states", "field": "position", "unit": "rad"},
        FRONT: {"topic": "/camera/front/image_raw"},
        ACTION: {"topic": "/command"},
    }
    words = [
        "data",
        "from-mcap",
        str(bag),
        "--config",
        str(path),
        "--output",
        str(tmp_path / "d"),
        "--task",
        "pick it up",
    ]
    assert main(words) == 0
    assert f"{tmp_path / 'd'}: 1 episode, 11 frames" in capsys.readouterr().out
    assert Dataset(tmp_path / "d").tasks == ["pick it up"]
    assert main(["data", "from-mcap", str(bag), "--output", str(tmp_path / "e")]) == 2
    assert "is no recording of Gantry" in capsys.readouterr().err


def test_a_suggestion_without_commands_takes_the_next_state(make, tmp_path):
    bag = make.write_mcap(tmp_path / "bag.mcap", [item for item in make.arm(1.0) if item[0] != "/command"])
    facts, _ = topic_facts(bag)
    mapping = suggested(facts)
    assert mapping["features"][ACTION] == {
        "topic": "/joint_states",
        "field": "position",
        "unit": "rad",
        "offset_s": 0.1,
    }
    assert convert_bags([bag], tmp_path / "d", bag_cfg(mapping)).frames == 11
    assert suggested([]) == {}


@pytest.mark.parametrize("suffix", ["mcap", "db3"])
def test_changed_bytes_never_surprise(make, tmp_path, suffix):
    """Whatever is changed in a bag, it is converted up to the damage, or refused with a message."""
    messages = make.arm(0.5)
    write = make.write_mcap if suffix == "mcap" else make.write_sqlite
    good = write(tmp_path / f"good.{suffix}", messages).read_bytes()
    rng, converted = np.random.default_rng(7), 0
    for number in range(12):
        data = bytearray(good)
        for place in rng.integers(0, len(data), 1 + number % 3):
            data[place : place + 4] = rng.integers(0, 256, 4, dtype=np.uint8).tobytes()
        path = tmp_path / f"bad{number}.{suffix}"
        path.write_bytes(data)
        try:
            convert_bags([path], tmp_path / f"d{number}", bag_cfg(make.MAPPING))
        except GantryError:
            assert not (tmp_path / f"d{number}").exists()
        else:
            converted += 1
            assert check_dataset(tmp_path / f"d{number}") == []
    assert converted

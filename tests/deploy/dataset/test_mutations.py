"""Damaged datasets, more in `scripts/attack`: each is found out or refused in one message, without a traceback."""

import contextlib
import json
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gantry_deploy.cli import main as cli
from gantry_deploy.dataset import Dataset, DatasetWriter
from gantry_deploy.dataset.checks.check import check_dataset
from gantry_deploy.dataset.storage.checksums import CHECKSUMS, accept_changes, require_checksums
from gantry_deploy.dataset.storage.layout import read_parquet
from gantry_deploy.dataset.testing import FEATURES, write_episodes
from gantry_deploy.errors import DatasetError
from gantry_hardware.errors import GantryError

COUNT, SEED = 40, 20261125
NASTY = (None, True, -1, 1e308, 2**70, "", "\u001b[2J", "../../x", [], {}, [[1], [1, 2]], "9" * 5000, float(2**60))


def flipped(data, rng):
    place, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
    return data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]


def cut(data, rng):
    return data[: rng.randrange(len(data))]


def zeroed(data, rng):
    begin = rng.randrange(len(data))
    return data[:begin] + bytes(len(data[begin : begin + 64])) + data[begin + 64 :]


def grown(data, rng):
    return data + rng.randbytes(rng.randrange(1, 2000))


def nested(data, rng):
    return rng.choice((b"[", b'{"a":')) * rng.choice((500, 100_000))


def doubled(data, rng):
    return data.rstrip()[:-1] + b', "fps": 7, "fps": 20}'


def one_value(data, rng):
    """JSON with one value, somewhere inside, replaced."""
    whole = json.loads(data)
    inner, path = whole, []
    while isinstance(inner, (dict, list)) and inner and (not path or rng.random() < 0.8):
        key = rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))
        path.append((inner, key))
        inner = inner[key]
    holder, key = path[-1]
    holder[key] = rng.choice(NASTY)
    return json.dumps(whole).encode()


ANY, JSON = (flipped, flipped, cut, zeroed, grown), (nested, doubled, one_value, one_value, one_value)


def files_of(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def walk(folder, capsys):
    """Everything that reads a dataset; the exit codes, which are never those of a traceback."""
    codes = {}
    for words in (["info"], ["check"], ["check", "--decode"], ["replay", "--episode", "2"], ["check", "--repair"]):
        codes[" ".join(words)] = cli.main(["data", words[0], str(folder), *words[1:]])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert "\x1b[2J" not in captured.out + captured.err
        if codes[" ".join(words)] == 2:
            assert captured.err.strip().splitlines()[-1].startswith("Error: ")
    return codes


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_no_damaged_dataset_is_called_intact_and_none_ends_in_a_traceback(tmp_path, capsys):
    good = tmp_path / "good"
    features = {key: item for key, item in FEATURES.items() if key != "note"}
    with DatasetWriter(good, 20, features, "tiny") as writer:
        write_episodes(writer)
    files = files_of(good)
    assert len(files) == 7
    counts = {"refused": 0, "found": 0}
    print("seed", SEED)
    for number in range(COUNT):
        rng = random.Random(SEED + number)
        folder = tmp_path / "d"
        shutil.copytree(good, folder)
        file = rng.choice(files)
        change = rng.choice((*ANY, *JSON) if file.suffix == ".json" else ANY)
        before = (folder / file).read_bytes()
        (folder / file).write_bytes(change(before, rng))
        said = f"seed {SEED + number}: {change.__name__} of {file}"
        if (folder / file).read_bytes() != before and not is_harmless(folder, good):
            assert check_dataset(folder), said
            counts["found"] += 1
            with pytest.raises(GantryError):
                raise_unless_refused(folder)
            counts["refused"] += 1
        assert set(walk(folder, capsys).values()) <= {0, 1, 2}, said
        # Whoever takes the changes as they are, or knows no checksums, still gets no traceback.
        with contextlib.suppress(GantryError):
            accept_changes(folder)
        assert set(walk(folder, capsys).values()) <= {0, 1, 2}, said
        shutil.rmtree(folder)
    print(counts)
    assert counts["found"] == counts["refused"] > 0.9 * COUNT
    assert check_dataset(good) == []


def is_harmless(folder, good):
    """Whether the checksums' own file has other bytes and says the same."""
    mine, theirs = ((where / CHECKSUMS).read_bytes() for where in (folder, good))
    try:
        return mine != theirs and json.loads(mine)["sha256"] == json.loads(theirs)["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def raise_unless_refused(folder):
    """What a learner, a robot or a writer does before it takes a number."""
    require_checksums(folder)
    Dataset(folder)


def test_every_byte_of_a_table_may_be_another_one(tmp_path):
    """Each high bit once: names that are no UTF-8, sizes that lie, and every other field of a Parquet file."""
    path = tmp_path / "table.parquet"
    table = pa.table({"column of text": ["first", "second"], "list": pa.array([[1.0], [2.0, 3.0]])})
    pq.write_table(table, path, write_page_checksum=True)
    whole, refused = path.read_bytes(), []
    for place, byte in enumerate(whole):
        path.write_bytes(whole[:place] + bytes([byte ^ 0x80]) + whole[place + 1 :])
        try:
            read_parquet(path).to_pylist()
        except DatasetError as error:
            refused.append(str(error))
    assert len(refused) > len(whole) / 2
    assert any("utf-8" in said.lower() for said in refused)


def test_a_text_that_is_no_utf_8_is_refused_where_the_table_is_read(tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"text": pa.array([b"caf\xe9"]).view(pa.string())}), path)
    with pytest.raises(DatasetError, match="UTF8"):
        read_parquet(path)

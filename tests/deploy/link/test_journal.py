"""Journals: what was written is read, damage ends a segment, a full disk harms nothing."""

import os
import signal
import subprocess
import sys

import pytest

from gantry_deploy.errors import LinkError
from gantry_deploy.link.journals.journal import HEADER, DiskFullError, Journal, JournalReader
from gantry_deploy.process.folder_lock import FolderLock

SEGMENT = 2000


def journal(folder, header=b"head", **options):
    options = {"segment_bytes": SEGMENT, "total_bytes": 10**6, "max_record": 10**5} | options
    return Journal(folder, lambda: header, **options)


def read_all(source, *, headers=False):
    reader = JournalReader(source)
    found = []
    while (record := reader.read(headers=headers)) is not None:
        found.append(record.number if not headers else (record.number, record.payload))
    reader.close()
    return found


def filled(folder, count=40, size=200):
    found = journal(folder)
    for number in range(1, count + 1):
        found.append(number, bytes([number % 256]) * size, sync=number % 7 == 0)
    return found


def test_records_come_back_in_order_from_many_segments(tmp_path):
    written = filled(tmp_path / "j")
    assert len(written.keys()) > 3
    assert read_all(written) == list(range(1, 41))
    again = journal(tmp_path / "j")
    assert [payload for number, payload in read_all(again, headers=True) if number == 3] == [b"\x03" * 200]
    again.append(41, b"more", sync=True)
    assert read_all(again) == list(range(1, 42))
    assert again.bytes == sum(path.stat().st_size for path in (tmp_path / "j").iterdir())


def test_each_segment_begins_with_the_header_of_its_time(tmp_path):
    headers = iter([b"first", b"second", b"third", b"fourth"])
    found = Journal(tmp_path, lambda: next(headers), segment_bytes=500, total_bytes=10**6, max_record=10**4)
    for number in range(1, 6):
        found.append(number, bytes(200), sync=False)
    assert [payload for number, payload in read_all(found, headers=True) if number == HEADER] == [
        b"first",
        b"second",
        b"third",
    ]


def test_a_reader_goes_on_while_records_are_added(tmp_path):
    found = journal(tmp_path)
    reader = JournalReader(found)
    assert reader.read() is None
    for number in range(1, 30):
        found.append(number, bytes(300), sync=False)
        assert reader.read().number == number
        assert reader.read() is None


@pytest.mark.parametrize("kind", ["cut", "flip"])
def test_a_segment_ends_at_its_first_damage(tmp_path, kind):
    """Cut or changed at any byte, the records before it are read, none behind it, and never a wrong one."""
    folder = tmp_path / "j"
    filled(folder, count=5, size=20).close()
    path = next(folder.iterdir())
    good = path.read_bytes()
    seen = set()
    for place in range(len(good)):
        data = good[:place] if kind == "cut" else good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :]
        path.write_bytes(data)
        found = read_all(journal(folder))
        assert found == list(range(1, len(found) + 1))
        assert len(found) <= 5 * place / len(good)
        seen.add(len(found))
    assert seen == {0, 1, 2, 3, 4}


def test_what_follows_a_damaged_segment_is_read(tmp_path):
    filled(tmp_path, count=20).close()
    first, second = sorted(tmp_path.iterdir())[:2]
    first.write_bytes(first.read_bytes()[:-1])
    second.write_bytes(b"something else")
    found = read_all(journal(tmp_path))
    assert found == sorted(found)
    assert found[0] == 1
    assert found[-1] == 20
    assert 0 < len(found) < 20


def test_what_is_acknowledged_is_forgotten_and_nothing_else(tmp_path):
    found = filled(tmp_path)
    found.forget_through(17)
    kept = read_all(found)
    assert kept[-1] == 40
    assert set(range(18, 41)) <= set(kept)
    assert len(kept) < 40
    found.forget_through(40)
    assert len(found.keys()) <= 1
    found.append(41, b"more", sync=False)
    assert read_all(found)[-1] == 41
    # A segment of an earlier process stays until it was read to its end.
    found.close()
    again = journal(tmp_path)
    again.forget_through(100)
    assert again.keys()
    read_all(again)
    again.forget_through(100)
    assert again.keys() == []


def test_a_journal_does_not_outgrow_its_bound(tmp_path):
    found = journal(tmp_path, total_bytes=3000)
    number = 0
    while found.bytes + 300 < 3000:
        found.append(number := number + 1, bytes(200), sync=False)
    with pytest.raises(DiskFullError, match="and at most 3000"):
        found.append(number + 1, bytes(600), sync=False)
    assert found.bytes <= 3000
    kept = read_all(found)
    found.forget_through(kept[-3])
    found.append(100, bytes(200), sync=False)
    assert read_all(found)[-1] == 100


FULL = """
import resource, sys
from pathlib import Path
from gantry_deploy.link.journals.journal import DiskFullError, Journal, JournalReader
journal = Journal(Path(sys.argv[1]), lambda: b"h", segment_bytes=10**6, total_bytes=10**7, max_record=10**5)
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, most))
def fill(first):
    try:
        for number in range(first, 1000):
            journal.append(number, bytes(700), sync=True)
    except DiskFullError as error:
        print(error)
        return number
full = fill(1)
assert fill(full) == full
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, most))
print(full, fill(full), len(journal.keys()))
reader, found = JournalReader(journal), []
while (record := reader.read()) is not None:
    found.append(record.number)
print(found == list(range(1, len(found) + 1)), len(found))
"""


def test_a_full_disk_takes_no_part_of_a_record_and_goes_on_when_there_is_space(tmp_path):
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *errors, numbers, readable = done.stdout.splitlines()
    first, second, segments = map(int, numbers.split())
    assert len(errors) == 3
    assert all("File too large. What is in it stays" in line for line in errors)
    assert 1 < first < second
    assert segments == 1
    assert readable == f"True {second - 1}"
    assert read_all(journal(tmp_path)) == list(range(1, second))


WRITER = """
import sys
from pathlib import Path
from gantry_deploy.link.journals.journal import Journal
journal = Journal(Path(sys.argv[1]), lambda: b"h", segment_bytes=20000, total_bytes=10**9, max_record=10**5)
for number in range(1, 10**6):
    journal.append(number, bytes(900), sync=False)
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_what_it_has_written(tmp_path):
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        for line in writer.stdout:
            if int(line) >= 200:
                break
        os.kill(writer.pid, signal.SIGKILL)
        last = max([200, *map(int, writer.stdout.read().split())])
    found = read_all(journal(tmp_path))
    assert found == list(range(1, len(found) + 1))
    assert len(found) - last in (0, 1)


def test_a_folder_is_used_by_one_process(tmp_path):
    lock = FolderLock(tmp_path / "spool", "The actor's spool", LinkError)
    with pytest.raises(LinkError, match=f"The actor's spool .*spool is in use by process {os.getpid()}"):
        FolderLock(tmp_path / "spool", "The actor's spool", LinkError)
    lock.release()
    FolderLock(tmp_path / "spool", "The actor's spool", LinkError).release()

"""Certificates: made, checked before use, and refused with the reason."""

import shutil
import stat
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from gantry_deploy.errors import LinkError
from gantry_deploy.link.certificates import AUTHORITY_DAYS, make_certificates, tls_files
from gantry_deploy.link.client import LinkClient
from gantry_deploy.link.server import LinkServer
from gantry_deploy.link.tls import WallClock, check_tls
from gantry_hardware.compat import UTC

HOSTS = ["127.0.0.1", "localhost"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("certificates")
    make_certificates(path, HOSTS, ["robot-1", "robot-2"])
    return path


def clock(days=0.0, jump_s=0.0):
    """A clock that was right but for so many days when it was made, and then set by some seconds."""
    times = iter([0.0])
    base_s = datetime.now(UTC).timestamp() + days * 86400 - jump_s
    return WallClock(lambda: base_s + next(times, jump_s), lambda: 0.0)


def test_files_are_made_and_secret_keys_are_secret(folder):
    names = {path.name for path in folder.iterdir()}
    assert names == {
        f"{name}.{end}" for name in ("authority", "learner", "robot-1", "robot-2") for end in ("crt", "key")
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.key")} == {0o600}
    check_tls(tls_files(folder, "learner"), "learner", "0.0.0.0:7447")
    check_tls(tls_files(folder, "robot-1"), "actor", "10.0.0.1:7447")


def test_certificates_are_replaced_on_request_alone(tmp_path):
    make_certificates(tmp_path, HOSTS, ["robot-1"])
    before = (tmp_path / "robot-1.crt").read_bytes()
    with pytest.raises(LinkError, match="holds certificates of robot-1 already"):
        make_certificates(tmp_path, [], ["robot-1", "robot-3"])
    written = make_certificates(tmp_path, [], ["robot-1", "robot-3"], renew=True)
    assert {path.name for path in written} == {"robot-1.crt", "robot-1.key", "robot-3.crt", "robot-3.key"}
    assert (tmp_path / "robot-1.crt").read_bytes() != before
    for name in ("learner", "robot-1", "robot-3"):  # One authority.
        check_tls(tls_files(tmp_path, name), "learner" if name == "learner" else "actor", "10.0.0.1:1")
    (tmp_path / "authority.key").unlink()
    with pytest.raises(LinkError, match="both are needed to sign"):
        make_certificates(tmp_path, [], ["robot-4"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"actors": ["../robot"]}, "identity of an actor is '../robot'"),
        ({"actors": ["learner"]}, "cannot be called 'learner'"),
        ({"actors": ["a"], "days": 10_000}, "days is 10000, expected a whole number from 1 to 825"),
        ({"actors": []}, "nothing to make"),
        ({"actors": [], "hosts": ["a b"]}, "host of the learner is 'a b'"),
    ],
)
def test_what_cannot_be_certified_is_refused(tmp_path, arguments, text):
    with pytest.raises(LinkError, match=text):
        make_certificates(tmp_path / "new", **{"hosts": [], **arguments})


def test_another_machine_is_reached_with_certificates_alone(tmp_path):
    for address in ("10.0.0.7:7447", "0.0.0.0:7447", "[::]:7447", "robot.example:7447"):
        with pytest.raises(LinkError, match=r"only mutual TLS is accepted.*gantry session certificates"):
            LinkServer(address, tmp_path / "j", None, contract_sha256="c0" * 32)
        with pytest.raises(LinkError, match="only mutual TLS is accepted"):
            LinkClient(address, "robot-1", tmp_path / "s", contract_sha256="c0" * 32)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["", "localhost", "localhost:99999", "a b:1", "http://localhost:1", "unix:/tmp/x"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(LinkError, match=r"expected host:port, for example 127\.0\.0\.1:7447"):
        check_tls(None, "actor", address)


def test_each_trouble_of_a_certificate_has_its_own_words(folder, tmp_path):
    make_certificates(tmp_path, HOSTS, ["robot-1"])
    own, foreign = tls_files(folder, "robot-1"), tls_files(tmp_path, "robot-1")
    (tmp_path / "none.crt").write_text("nothing")
    with (tmp_path / "long.crt").open("wb") as file:
        file.truncate(2**30)
    for wrong, text in (
        (replace(own, authority=foreign.authority), "is not signed by .*: it is of another authority"),
        (replace(own, key=foreign.key), "is not the key of"),
        (replace(own, certificate=tmp_path / "missing.crt"), "cannot be read: No such file"),
        (replace(own, certificate=tmp_path / "none.crt"), "is no certificate in PEM"),
        (replace(own, certificate=tmp_path / "long.crt"), "has more than 262144 bytes"),
        (replace(own, key=own.certificate), "is no private key in PEM without a password"),
        (tls_files(folder, "learner"), "is the certificate of a learner, expected that of the actor"),
    ):
        with pytest.raises(LinkError, match=text):
            check_tls(wrong, "actor", "10.0.0.1:7447")
    with pytest.raises(LinkError, match="is the certificate of an actor, expected that of the learner"):
        check_tls(own, "learner", "10.0.0.1:7447")
    with pytest.raises(LinkError, match="is that of 'robot-1', and the identity is 'robot-2'"):
        LinkClient("10.0.0.1:1", "robot-2", tmp_path / "s", contract_sha256="c0" * 32, tls=own)


def test_an_expired_certificate_is_told_from_a_clock_that_jumped(folder):
    """Old age, a clock that is behind, and clocks that were set while the process ran."""
    own = tls_files(folder, "robot-1")
    check_tls(own, "actor", "10.0.0.1:1", clock())
    check_tls(own, "actor", "10.0.0.1:1", clock(jump_s=3600.0))
    for wrong, text in (
        (clock(days=91), r"expired on [-0-9: ]+ UTC\. This machine's clock says [-0-9: ]+ UTC\. 'gantry session"),
        (clock(days=AUTHORITY_DAYS + 1), r"authority\.crt expired on"),
        (clock(days=-1), "not yet valid, before .* which is before the file was made: the clock is probably wrong"),
        (clock(days=400, jump_s=400 * 86400.0), "expired .* set forward by 34560000 s .* the certificate is good"),
        (clock(days=-30, jump_s=-30 * 86400.0), "not yet valid.* set back by 2592000 s .* the certificate is good"),
    ):
        with pytest.raises(LinkError, match=text):
            check_tls(own, "actor", "10.0.0.1:1", wrong)


def test_a_certificate_of_yesterday_is_expired(tmp_path):
    make_certificates(tmp_path, HOSTS, ["robot-1"], days=1, now=datetime.now(UTC) - timedelta(days=3))
    with pytest.raises(LinkError, match=r"learner\.crt expired on"):
        LinkServer("0.0.0.0:0", tmp_path / "j", None, contract_sha256="c0" * 32, tls=tls_files(tmp_path, "learner"))
    shutil.rmtree(tmp_path)

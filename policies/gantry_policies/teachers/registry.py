"""Registry of teachers: a text names one, of this package or of another."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl

from gantry_hardware.errors import UnknownNameError
from gantry_hardware.files.text import plain_text
from gantry_hardware.plugins import find_plugin, load_plugin, plugin_names
from gantry_policies.teachers.several import SeveralTeachers
from gantry_policies.teachers.teacher import ActionTeacher, TeacherError

GROUP = "gantry.teachers"
"""Entry-point group: kind -> function from the rest of the text, behind ``KIND:``, to an :class:`ActionTeacher`."""
EXAMPLES = "openpi:HOST:PORT, bundle:PATH, lerobot:FOLDER"
REFUSED = {
    "lerobot-async": (
        "LeRobot's asynchronous inference sends pickles, which run whatever code the other side puts into them. Load "
        "the policy here as lerobot:FOLDER, or serve it in openpi's protocol and give openpi:HOST:PORT."
    )
}
"""Kinds that are known and not supported, with the reason."""
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5})")
_OPTIONS = ("state", "prompt", "channels_first", "api_key_file", "authority", "deadline_s", "camera.NAME")
_YES = {"1": True, "true": True, "0": False, "false": False}


def teacher_names() -> list[str]:
    """Kinds of all installed teachers, sorted."""
    return plugin_names(GROUP)


def make_teacher(text: str) -> ActionTeacher:
    """The teacher that a text names.

    Args:
        text: ``openpi:HOST:PORT``, with options behind a ``?`` (:func:`open_remote`); ``bundle:PATH`` of a folder, a
            zip or ``pretrained:NAME``; ``lerobot:FOLDER`` of a policy; or ``KIND:REST`` of another package. Several
            are separated by commas, and each of them answers for its share of the environments
            (:class:`~gantry_policies.teachers.several.SeveralTeachers`).

    Raises:
        TeacherError: If the text names no teacher, the kind is refused, or it cannot be loaded here.
        UnknownNameError: If there is no such kind; with the near miss.
        GantryError: If the teacher cannot be made.
    """
    if "," in text:
        return _several(text.split(","))
    kind, colon, rest = text.partition(":")
    if kind in REFUSED:
        raise TeacherError(f"A teacher '{kind}' is refused. {REFUSED[kind]}")
    if not colon or not rest:
        raise TeacherError(f"{plain_text(text)} names no teacher; expected for example {EXAMPLES}.")
    make: Callable[[str], ActionTeacher] = load_plugin(
        find_plugin(GROUP, kind, "kind of teacher"), "Teacher", TeacherError
    )
    return make(rest)


def _several(texts: list[str]) -> ActionTeacher:
    """Teachers of a list; those that were opened are closed where a later one fails."""
    opened: list[ActionTeacher] = []
    try:
        opened += (make_teacher(text) for text in texts)
        return SeveralTeachers(opened)
    except BaseException:
        for teacher in opened:
            teacher.close()
        raise


def open_remote(text: str) -> ActionTeacher:
    """A server that speaks openpi's protocol.

    Args:
        text: ``HOST:PORT``, and behind a ``?`` options joined by ``&``: ``state``, ``prompt`` and ``camera.NAME``, the
            keys of an observation as the server wants them; ``channels_first=true``; ``api_key_file``; ``authority``,
            the certificate of the authority for TLS; ``deadline_s``. For a LIBERO server for example
            ``localhost:8000?camera.front=observation/image&camera.wrist=observation/wrist_image``.

    Raises:
        TeacherError: If the address or a value makes no sense.
        UnknownNameError: If there is no such option.
        PolicyServerError: If no server answers.
    """
    address, _, query = text.partition("?")
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise TeacherError(f"The address of a policy server is {plain_text(address)}, expected HOST:PORT.")
    try:
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise TeacherError(f"The options {plain_text(query)} are not of the form key=value&key=value.") from error
    for name, _ in given:
        if name not in _OPTIONS and not name.startswith("camera."):
            raise UnknownNameError("option of a policy server", name, _OPTIONS)
    options = dict(given)
    try:
        from gantry_deploy.openpi.client import PolicyClient
        from gantry_deploy.openpi.command import read_api_key
        from gantry_policies.teachers.remote import ObservationKeys, RemoteTeacher
    except ImportError as error:
        raise TeacherError(
            f"A policy server needs a package that is missing ({error}): pip install 'gantry-rl[serve]'."
        ) from error
    cameras = {name.removeprefix("camera."): key for name, key in given if name.startswith("camera.")}
    keys = ObservationKeys(
        state=options.get("state", ObservationKeys.state),
        prompt=options.get("prompt", ObservationKeys.prompt),
        cameras=cameras,
        channels_first=_yes("channels_first", options.get("channels_first", "false")),
    )
    client = PolicyClient(
        match["host"].strip("[]"),
        int(match["port"]),
        api_key=read_api_key(options["api_key_file"]) if "api_key_file" in options else None,
        authority=Path(options["authority"]) if "authority" in options else None,
        deadline_s=_seconds(options.get("deadline_s", "10")),
    )
    return RemoteTeacher(client, keys)


def open_bundle_teacher(text: str) -> ActionTeacher:
    """A bundle on this machine: its folder or zip, or ``pretrained:NAME``.

    Raises:
        GantryError: If there is no intact bundle.
    """
    from gantry_policies.teachers.bundle import BundleTeacher

    return BundleTeacher(text)


def open_lerobot(text: str) -> ActionTeacher:
    """A policy of LeRobot: the folder with its ``config.json`` and ``model.safetensors``.

    Raises:
        TeacherError: If the folder holds none, its statistics are missing, or ``lerobot`` is not installed.
    """
    from gantry_policies.teachers.lerobot_policy import LerobotTeacher

    return LerobotTeacher(text)


def _yes(name: str, text: str) -> bool:
    if text not in _YES:
        raise TeacherError(f"{name} is {plain_text(text)}, expected true or false.")
    return _YES[text]


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise TeacherError(f"deadline_s is {plain_text(text)}, expected a number of seconds.") from error

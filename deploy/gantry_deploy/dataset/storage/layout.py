"""Layout of a LeRobot v3 dataset: file names, ``info.json``, the tables of episodes and tasks.

Read off the ``lerobot`` package (0.4.4 and 0.6.1 write the same ``v3.0``). Many episodes share a file;
``meta/episodes`` says which rows of which data file and which seconds of which video belong to an episode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gantry_deploy.dataset.features import DEFAULT_FEATURES, Feature
from gantry_deploy.errors import DatasetError
from gantry_hardware.files.json_file import read_json_object
from gantry_hardware.files.text import plain_text

VERSION = "v3.0"
INFO, STATS, TASKS, EPISODES = "meta/info.json", "meta/stats.json", "meta/tasks.parquet", "meta/episodes"
_FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}"
EPISODES_PATH = f"{EPISODES}/{_FILE}.parquet"
DATA_PATH = f"data/{_FILE}.parquet"
VIDEO_PATH = f"videos/{{video_key}}/{_FILE}.mp4"
CHUNK_SIZE = 1000
"""Files in one folder."""
DATA_FILE_MB, VIDEO_FILE_MB = 100, 200
"""Largest files that LeRobot writes; Gantry's own are smaller, see :mod:`gantry_deploy.dataset.writer`."""
MAX_JSON_BYTES = 256 * 1024 * 1024
"""No description of a dataset is this long."""

FileIndex = tuple[int, int]
"""Chunk (folder) and file within it."""

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_ALLOWED_PLACEHOLDERS = re.compile(r"(chunk_index|file_index|video_key)(:0?\d{0,2}d)?")


class OtherVersionError(DatasetError):
    """A dataset of another version of LeRobot's format."""


@dataclass(frozen=True)
class VideoSpan:
    """Place of an episode in a video file."""

    file: FileIndex
    """Chunk and file."""
    from_s: float
    """Time of its first frame in the file."""
    to_s: float
    """Time at which its last frame is over."""


@dataclass(frozen=True)
class EpisodeRow:
    """One row of ``meta/episodes`` without its statistics."""

    index: int
    """Number of the episode."""
    length: int
    """Frames."""
    tasks: tuple[str, ...]
    """Every task that one of its frames is of."""
    start: int
    """Index of its first frame in the dataset."""
    stop: int
    """Index of the frame after its last."""
    data_file: FileIndex
    """File of its rows."""
    videos: Mapping[str, VideoSpan] = field(default_factory=dict)
    """Places of its pictures, by camera that is stored as video."""

    def columns(self, meta_file: FileIndex) -> dict[str, Any]:
        """The row as plain values, in LeRobot's order; statistics go between."""
        row: dict[str, Any] = {"episode_index": self.index, "tasks": list(self.tasks), "length": self.length}
        row |= {"data/chunk_index": self.data_file[0], "data/file_index": self.data_file[1]}
        row |= {"dataset_from_index": self.start, "dataset_to_index": self.stop}
        for key, span in self.videos.items():
            row[f"videos/{key}/chunk_index"], row[f"videos/{key}/file_index"] = span.file
            row[f"videos/{key}/from_timestamp"], row[f"videos/{key}/to_timestamp"] = span.from_s, span.to_s
        row |= {"meta/episodes/chunk_index": meta_file[0], "meta/episodes/file_index": meta_file[1]}
        return row

    @classmethod
    def from_columns(cls, row: Mapping[str, Any], video_keys: list[str]) -> EpisodeRow:
        """Read a row.

        Raises:
            DatasetError: If a column is missing or holds no number.
        """
        try:
            videos = {
                key: VideoSpan(
                    (int(row[f"videos/{key}/chunk_index"]), int(row[f"videos/{key}/file_index"])),
                    float(row[f"videos/{key}/from_timestamp"]),
                    float(row[f"videos/{key}/to_timestamp"]),
                )
                for key in video_keys
            }
            return cls(
                index=int(row["episode_index"]),
                length=int(row["length"]),
                tasks=tuple(row["tasks"] or ()),
                start=int(row["dataset_from_index"]),
                stop=int(row["dataset_to_index"]),
                data_file=(int(row["data/chunk_index"]), int(row["data/file_index"])),
                videos=videos,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f"A row of {EPISODES} (episode {row.get('episode_index', '?')}) is malformed: "
                f"{type(error).__name__}: {error}."
            ) from error


@dataclass
class Info:
    """``meta/info.json``: what the dataset holds and how much of it. What is not understood is kept."""

    fps: int
    """Frames per second."""
    features: dict[str, Feature]
    """Every column, :data:`DEFAULT_FEATURES` included."""
    robot_type: str | None = None
    """Name of the robot, or None."""
    total_episodes: int = 0
    """Episodes that are complete. What lies beyond is left over from a writer that was killed."""
    total_frames: int = 0
    """Frames in them."""
    total_tasks: int = 0
    """Different tasks."""
    chunks_size: int = CHUNK_SIZE
    """Files in one folder."""
    data_path: str = DATA_PATH
    """Template of a data file's path in the folder."""
    video_path: str | None = VIDEO_PATH
    """Template of a video's path in the folder."""
    raw: dict[str, Any] = field(default_factory=dict)
    """The file as it was read."""

    @property
    def video_keys(self) -> list[str]:
        """Cameras that are stored as video."""
        return [name for name, feature in self.features.items() if feature.dtype == "video"]

    def data_file(self, file: FileIndex) -> str:
        """Path of a data file within the dataset."""
        return self.data_path.format(chunk_index=file[0], file_index=file[1])

    def video_file(self, key: str, file: FileIndex) -> str:
        """Path of a video within the dataset."""
        return (self.video_path or VIDEO_PATH).format(video_key=key, chunk_index=file[0], file_index=file[1])

    def to_json(self) -> bytes:
        """The file's bytes, as LeRobot formats them."""
        own = {
            "codebase_version": VERSION,
            "robot_type": self.robot_type,
            "total_episodes": self.total_episodes,
            "total_frames": self.total_frames,
            "total_tasks": self.total_tasks,
            "chunks_size": self.chunks_size,
            "data_files_size_in_mb": self.raw.get("data_files_size_in_mb", DATA_FILE_MB),
            "video_files_size_in_mb": self.raw.get("video_files_size_in_mb", VIDEO_FILE_MB),
            "fps": self.fps,
            "splits": {"train": f"0:{self.total_episodes}"} if self.total_episodes else {},
            "data_path": self.data_path,
            "video_path": self.video_path,
            "features": {name: feature.to_json() for name, feature in self.features.items()},
        }
        return json_bytes({**self.raw, **own})

    @classmethod
    def read(cls, folder: Path) -> Info:
        """Read and check ``meta/info.json``.

        Raises:
            DatasetError: If there is none, it is of another version, or it asks for files outside the dataset.
        """
        path = folder / INFO
        if not path.is_file():
            raise DatasetError(f"'{folder}' is no dataset: there is no {INFO} in it.")
        data = read_json(path)
        version = data.get("codebase_version")
        if version != VERSION:
            raise OtherVersionError(
                f"{path}: codebase_version is {plain_text(version)}, expected '{VERSION}'. Older datasets are "
                "converted with LeRobot's own script, lerobot.datasets.v30.convert_dataset_v21_to_v30."
            )
        if not isinstance(data.get("features"), dict):
            raise DatasetError(
                f"{path}: features is {plain_text(data.get('features'))}, expected an object of features."
            )
        fps = data.get("fps")
        if isinstance(fps, float) and fps.is_integer():
            fps = int(fps)
        info = cls(
            fps=_count(path, "fps", fps, least=1),
            features={name: Feature.from_json(name, entry) for name, entry in data["features"].items()},
            robot_type=data.get("robot_type"),
            total_episodes=_count(path, "total_episodes", data.get("total_episodes")),
            total_frames=_count(path, "total_frames", data.get("total_frames")),
            total_tasks=_count(path, "total_tasks", data.get("total_tasks")),
            chunks_size=_count(path, "chunks_size", data.get("chunks_size", CHUNK_SIZE), least=1),
            data_path=_template(path, "data_path", data.get("data_path", DATA_PATH)),
            video_path=None if data.get("video_path") is None else _template(path, "video_path", data["video_path"]),
            raw=data,
        )
        missing = [name for name in DEFAULT_FEATURES if name not in info.features]
        if missing:
            raise DatasetError(f"{path}: features lack {', '.join(missing)}, which every dataset has.")
        return info


def next_file(file: FileIndex, chunks_size: int = CHUNK_SIZE) -> FileIndex:
    """The file after a file: the next in its folder, or the first of the next folder."""
    return (file[0] + 1, 0) if file[1] >= chunks_size - 1 else (file[0], file[1] + 1)


def json_bytes(data: Mapping[str, Any]) -> bytes:
    """JSON as LeRobot formats it."""
    return json.dumps(data, indent=4, ensure_ascii=False, allow_nan=False).encode()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        DatasetError: If the file cannot be read, is absurdly long, or holds something else.
    """
    try:
        return read_json_object(path, max_bytes=MAX_JSON_BYTES, allow_nan=True, error=DatasetError)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}.") from error


def read_parquet(path: Path, columns: list[str] | None = None) -> pa.Table:
    """A table from a file.

    Raises:
        DatasetError: If the file is missing, was never finished, or lacks a column.
    """
    try:
        # Not as a dataset: the folders of a path would be taken for columns. One thread per core would not be faster.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if columns is not None:
                known = set(file.schema_arrow.names)
                absent = [name for name in columns if name not in known]
                if absent:
                    raise DatasetError(f"{path} lacks the columns {', '.join(absent)}.")
            table = file.read(columns=columns, use_threads=False)
            table.validate(full=True)  # Texts that are no UTF-8 would be found where they are first used.
            return table
    except FileNotFoundError as error:
        raise DatasetError(f"{path} does not exist.") from error
    except (OSError, pa.ArrowException, ValueError) as error:  # ValueError: names of columns that are no UTF-8.
        raise DatasetError(f"{path} cannot be read as Parquet: {_first_line(error)}") from error


def task_table(tasks: list[str]) -> pa.Table:
    """``meta/tasks.parquet``: pandas stores the task as the table's index, and LeRobot looks it up there."""
    index = "__index_level_0__"
    described = [("task_index", "task_index", "int64", "int64"), (None, index, "unicode", "object")]
    names = ("name", "field_name", "pandas_type", "numpy_type")
    pandas = {
        "index_columns": [index],
        "column_indexes": [
            dict(zip(names, (None, None, "unicode", "object"), strict=True)) | {"metadata": {"encoding": "UTF-8"}}
        ],
        "columns": [dict(zip(names, column, strict=True)) | {"metadata": None} for column in described],
        "attributes": {},
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.3.3",
    }
    columns = {"task_index": pa.array(range(len(tasks)), pa.int64()), index: pa.array(tasks, pa.string())}
    return pa.table(columns).replace_schema_metadata({"pandas": json.dumps(pandas)})


def read_tasks(path: Path) -> list[str]:
    """Tasks in the order of their index.

    Raises:
        DatasetError: If the file cannot be read or the indices are not 0, 1, 2, ...
    """
    table = read_parquet(path)
    texts = [name for name in table.column_names if name != "task_index"]
    if "task_index" not in table.column_names or not texts:
        raise DatasetError(f"{path} has the columns {', '.join(table.column_names)}, expected task_index and the task.")
    indices, tasks = table["task_index"].to_pylist(), table[texts[0]].to_pylist()
    if sorted(index for index in indices if index is not None) != list(range(len(tasks))):
        raise DatasetError(f"{path}: task_index holds {indices}, expected each of 0 to {len(tasks) - 1} once.")
    return [str(task) for _, task in sorted(zip(indices, tasks, strict=True))]


def read_episode_tables(folder: Path) -> list[tuple[Path, pa.Table]]:
    """Every file of ``meta/episodes`` in order.

    Raises:
        DatasetError: If one cannot be read.
    """
    return [(path, read_parquet(path)) for path in sorted((folder / EPISODES).glob("*/*.parquet"))]


def _template(path: Path, name: str, text: Any) -> str:
    """A path template that stays in its folder and formats nothing but indices.

    A dataset may come from anywhere, and ``str.format`` can reach into what it is given.
    """
    filled = str(text)
    fine = isinstance(text, str) and all(_ALLOWED_PLACEHOLDERS.fullmatch(item) for item in _PLACEHOLDER.findall(filled))
    plain = _PLACEHOLDER.sub("0", filled)
    if not fine or "{" in plain or "}" in plain or Path(plain).is_absolute() or ".." in Path(plain).parts:
        raise DatasetError(
            f"{path}: {name} is {plain_text(text)}, expected a path within the dataset such as '{DATA_PATH}'."
        )
    return filled


def _count(path: Path, name: str, value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise DatasetError(f"{path}: {name} is {plain_text(value)}, expected a whole number of at least {least}.")
    return value


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") + "."

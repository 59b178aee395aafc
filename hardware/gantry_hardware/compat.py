"""Parts of Python 3.11's standard library for the Python 3.10 of ROS 2 Humble."""

from __future__ import annotations

import enum
import hashlib
import sys
from datetime import timezone
from typing import BinaryIO

__all__ = ["UTC", "StrEnum", "sha256_of"]

UTC = timezone.utc

if sys.version_info >= (3, 11):
    StrEnum = enum.StrEnum
else:

    class StrEnum(str, enum.Enum):
        """Enumeration whose members are texts."""

        def __str__(self) -> str:
            return str(self.value)

        @staticmethod
        def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
            return name.lower()


def sha256_of(file: BinaryIO) -> str:
    """SHA-256 of what is left of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()

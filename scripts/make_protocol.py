"""Generate the modules of the link's messages from ``corrections.proto``, with grpcio-tools (extra ``dev``).

python scripts/make_protocol.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "deploy/gantry_deploy/link/protocol"
"""Folder of the messages."""
NAMES = ("corrections_pb2.py", "corrections_pb2.pyi")
"""Files that are generated."""


def generate(folder: Path) -> None:
    """Write the generated files into a folder.

    Raises:
        SystemExit: If the compiler does not take the messages.
    """
    from grpc_tools import protoc

    arguments = ["protoc", f"-I{SOURCE}", f"--python_out={folder}", f"--pyi_out={folder}", "corrections.proto"]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc has failed.")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE)

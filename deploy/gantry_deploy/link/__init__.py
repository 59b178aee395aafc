"""The link between the actors of a correction session and its learner: gRPC, mutual TLS, journals on both sides.

Needs the packages of the extra ``corrections``. Nothing that travels is a pickle, and nothing is taken before its size,
its kind and, where it is large, its SHA-256 are checked.
"""

from __future__ import annotations

try:
    import cryptography  # noqa: F401
    import google.protobuf  # noqa: F401
    import grpc  # noqa: F401
    import safetensors  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"Module '{error.name}' is not installed, and the link between actors and a learner needs it; it comes with pip"
        " install 'gantry-rl[corrections]'.",
        name=error.name,
    ) from error

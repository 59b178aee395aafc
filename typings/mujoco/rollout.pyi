# mujoco ships no type information; everything in it counts as Any.
from typing import Any

def __getattr__(name: str) -> Any: ...

"""A stand-in for a GPU on any machine: tensors on torch's device ``meta``, and a watch over what would wait for a GPU.

Tensors on ``meta`` have shapes and no numbers. Torch by itself refuses some of what a GPU has to be waited for, and
lets pass a good deal more: products with a tensor of the CPU, copies from it, tensors made of Python numbers. The watch
finds them all, notes the place, and answers as if every condition were true and every mask full, so that one run meets
every branch and tells every place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.optim import optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from torch.utils.weak import WeakTensorKeyDictionary

META = "meta"
"""Device of the stand-in."""
NUMBER = "a number is read"
ROWS = "the number of rows depends on values"
TO_CPU = "copied to the CPU"
TO_DEVICE = "copied from the CPU"
MADE = "made of numbers of the CPU"
MIXED = "a tensor of the CPU among those of the device"
CHECKED = "the result is checked for failure"
WAITS = frozenset((NUMBER, ROWS, TO_CPU, TO_DEVICE, MADE, CHECKED))
"""Kinds that a GPU takes time for; it refuses the remaining one."""

_READS = {Tensor.item: None, Tensor.__bool__: bool, Tensor.__int__: int, Tensor.__index__: int, Tensor.__float__: float}
"""Methods that read a number, with its type; None for that of the tensor."""
_READERS = (*_READS, Tensor.tolist, Tensor.numpy, Tensor.__array__)
_MAKERS = (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)
_ALL_OR_NONE = ("aten::cat", "aten::stack", "aten::index_put", "aten::index_put_")
"""Operations that take no tensor of the CPU, however small; others take one without dimensions, as a number."""
_PASSED_OVER = ("/torch/", "/array_api_compat/", "/contextlib.py", "/one_device.py", "/tensordict/")


@dataclass(frozen=True)
class Allowed:
    """A place that may wait, and why."""

    place: str
    """End of the file's path, a colon, and the function's name."""
    why: str
    """Reason."""
    within: bool = False
    """Whether all that the function calls may wait, too."""
    answer: bool = True
    """What a condition that is read there is said to be; a mask is full where it is true, else empty."""
    kinds: frozenset[str] = WAITS
    """Kinds that are allowed there."""


@dataclass(frozen=True)
class Wait:
    """What would wait for a GPU, or fail on it."""

    kind: str
    """One of this module's kinds."""
    place: str
    """File, line and function of the innermost call that is no library's of tensors."""
    allowed: Allowed | None = None
    """The entry of the list that allows it."""

    def __str__(self) -> str:
        return f"{self.place}: {self.kind}"


class Numbers:
    """Numbers of tensors of the stand-in, kept on the CPU as far as they are known.

    What is built on the device reads its own constants here and there; with them it is built as it would be on a GPU.
    """

    def __init__(self) -> None:
        self._twins = WeakTensorKeyDictionary()

    def keep(self, tensor: Tensor, twin: Tensor) -> Tensor:
        """Remember a tensor's numbers; returns the tensor."""
        self._twins[tensor] = twin
        return tensor

    def of(self, tensor: Any) -> Tensor | None:
        """Its numbers on the CPU; a tensor of the CPU is its own; None if they are not known."""
        return tensor if not on_device(tensor) else self._twins.get(tensor)

    def repeated(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation's results from the numbers, on the CPU; None where some are not known."""
        leaves, spec = tree_flatten((args, kwargs))
        twins = [self.of(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        if any(twin is None and leaf is not None for leaf, twin in zip(leaves, twins, strict=True)):
            return None
        moved = [torch.device("cpu") if isinstance(twin, torch.device) else twin for twin in twins]
        own_args, own_kwargs = tree_unflatten(moved, spec)
        return func(*own_args, **own_kwargs)

    def matched(self, found: Any, twin: Any) -> Any:
        """Remember the numbers of an operation's results; returns the results."""
        for one, other in zip(tree_leaves(found), tree_leaves(twin), strict=True):
            if on_device(one):
                self._twins[one] = other
        return found


class Watch:
    """What was found while :func:`watched`.

    Args:
        allowed: Places that may wait.
        numbers: Where tensors keep their numbers; None where conditions are to be answered.
    """

    def __init__(self, allowed: Sequence[Allowed], numbers: Numbers | None = None) -> None:
        self.allowed, self.numbers = tuple(allowed), numbers
        self.found: list[Wait] = []

    @property
    def refused(self) -> list[str]:
        """Each place that is not allowed once, in the order of their meeting."""
        return list(dict.fromkeys(str(wait) for wait in self.found if wait.allowed is None))

    @property
    def used(self) -> set[Allowed]:
        """Entries of the list that something was found for."""
        return {wait.allowed for wait in self.found if wait.allowed is not None}

    def note(self, kind: str) -> bool:
        """Add what happens in the calling frame; returns what a condition there is said to be."""
        frames = list(_frames())
        innermost = next((f for f in frames if not any(part in f[0] for part in _PASSED_OVER)), frames[-1])
        rule = next((rule for rule in self.allowed if _allows(rule, kind, innermost, frames)), None)
        path, line, name = innermost
        short = "/".join(Path(path).parts[-4:])
        self.found.append(Wait(kind, f"{short}:{line} {name}", rule))
        return rule is None or rule.answer


def _frames() -> Iterator[tuple[str, int, str]]:
    """File, line and function of all callers, innermost first."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back


def _allows(rule: Allowed, kind: str, innermost: tuple[str, int, str], frames: Sequence[tuple[str, int, str]]) -> bool:
    if kind not in rule.kinds:
        return False
    path, name = rule.place.rsplit(":", 1)
    return any(at.endswith(path) and function == name for at, _, function in (frames if rule.within else (innermost,)))


def on_device(value: object) -> bool:
    """Whether it is a tensor of the stand-in."""
    return isinstance(value, Tensor) and value.device.type == META


def on_cpu(value: object) -> bool:
    """Whether it is a tensor of the CPU."""
    return isinstance(value, Tensor) and value.device.type == "cpu"


class _Functions(TorchFunctionMode):
    """Finds what torch's Python interface alone shows: numbers that are read, and tensors that are made of them."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        numbers = self._watch.numbers
        if numbers is not None and func in _READERS and (twin := numbers.of(args[0])) is not None:
            return func(twin, *args[1:], **kwargs)
        if func in _READS and on_device(args[0]):
            return (_READS[func] or _python_type(args[0]))(self._watch.note(NUMBER))
        if func in (Tensor.tolist, Tensor.numpy, Tensor.__array__) and on_device(args[0]):
            self._watch.note(TO_CPU)
            held = torch.ones(args[0].shape, dtype=args[0].dtype)
            return held.tolist() if func is Tensor.tolist else held.numpy()
        if func is torch.allclose and on_device(args[0]):
            return self._watch.note(NUMBER)
        if func in (Tensor.__getitem__, Tensor.__setitem__) and on_device(args[0]) and _listed(args[1]):
            self._watch.note(MADE)
        found = func(*args, **kwargs)
        if (
            func in _MAKERS
            and on_device(found)
            and not any(on_device(leaf) for leaf in tree_leaves((args[1:], kwargs)))
        ) and (func is Tensor.new_tensor or not on_device(args[0])):
            self._watch.note(MADE)
            if numbers is not None and func is not Tensor.new_tensor:
                numbers.keep(found, func(*args, **{**kwargs, "device": "cpu"}))
        return found


def _listed(index: Any) -> bool:
    """Whether an index holds numbers of Python or numpy that become a tensor."""
    return any(isinstance(part, (list, np.ndarray)) for part in (index if isinstance(index, tuple) else (index,)))


def _python_type(value: Tensor) -> type:
    return bool if value.dtype == torch.bool else float if value.is_floating_point() else int


class _Operations(TorchDispatchMode):
    """Finds what operations do, those of the backward pass included."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        numbers = self._watch.numbers
        if numbers is None:
            return self._done(func, args, kwargs)
        twin = numbers.repeated(func, args, kwargs)
        if twin is None:
            return self._done(func, args, kwargs)
        if func._schema.name in _ANSWERED:
            like = tree_map(lambda leaf: torch.empty_like(leaf, device=META) if on_cpu(leaf) else leaf, twin)
            return numbers.matched(like, twin)
        return numbers.matched(self._done(func, args, kwargs), twin)

    def _done(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operation itself, and what is found about it."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        name = func._schema.name
        if name in ("aten::copy_", "aten::_to_copy"):
            return self._copied(func, args, kwargs)
        if not any(on_device(tensor) for tensor in tensors):
            return func(*args, **kwargs)
        strict = name in _ALL_OR_NONE
        if any(on_cpu(tensor) and (strict or tensor.dim() > 0) for tensor in tensors):
            self._watch.note(MIXED)
            args, kwargs = _moved(args), {key: _moved(value) for key, value in kwargs.items()}
        if name in _ANSWERED:
            return _ANSWERED[name](self._watch, func, args, kwargs)
        return func(*args, **kwargs)

    def _copied(self, func: Any, args: Any, kwargs: Any) -> Any:
        source = args[1] if len(args) > 1 else args[0]
        target = args[0].device.type if len(args) > 1 else torch.device(kwargs.get("device") or source.device).type
        if source.device.type == META and target == "cpu":
            self._watch.note(TO_CPU)
            held = torch.ones(source.shape, dtype=kwargs.get("dtype") or source.dtype)
            return args[0].copy_(held) if len(args) > 1 else held
        if source.device.type == "cpu" and target == META:
            self._watch.note(TO_DEVICE)
        return func(*args, **kwargs)


def _moved(value: Any) -> Any:
    """The same with tensors of the device."""
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item) for item in value)
    return torch.empty_like(value, device=META) if on_cpu(value) and value.dim() > 0 else value


def _read(watch: Watch, func: Any, args: Any, kwargs: Any) -> Any:
    return (_python_type(args[0]) if func._schema.name == "aten::_local_scalar_dense" else bool)(watch.note(NUMBER))


def _places(mask: Tensor, full: bool) -> Tensor:
    """Indices (k, dim) of a mask that is full, or empty."""
    return torch.empty(mask.numel() if full else 0, mask.dim(), dtype=torch.int64, device=META)


def _nonzero(watch: Watch, func: Any, args: Any, kwargs: Any) -> Any:
    return _places(args[0], watch.note(ROWS))


def _flat(watch: Watch, func: Any, args: Any, kwargs: Any) -> Any:
    watch.note(ROWS)
    flat = args[0].new_empty(args[0].numel())
    if func._schema.name == "aten::masked_select":
        return flat
    return flat, *(torch.empty(args[0].numel(), dtype=torch.int64, device=META) for _ in range(2))


def _different(watch: Watch, func: Any, args: Any, kwargs: Any) -> Any:
    watch.note(ROWS)
    count = args[0].shape[args[1]]
    return torch.empty_like(args[0]), *(torch.empty(count, dtype=torch.int64, device=META) for _ in range(2))


def _repeated(watch: Watch, func: Any, args: Any, kwargs: Any) -> Any:
    if kwargs.get("output_size") is None:
        watch.note(ROWS)
        kwargs = {**kwargs, "output_size": args[0].numel()}
    return func(*args, **kwargs)


def _indexed(watch: Watch, func: Any, args: Any, kwargs: Any) -> Any:
    """Indexing; a full mask stands for any mask."""
    indices = args[1]
    masks = [index for index in indices if index is not None and index.dtype in (torch.bool, torch.uint8)]
    put = func._schema.name.startswith("aten::index_put")
    if not masks:
        return func(*args, **kwargs)
    whole = all(index is None or any(index is mask for mask in masks) for index in indices)
    if put and whole and args[2].numel() == 1 and not (args[3] if len(args) > 3 else kwargs.get("accumulate")):
        return func(*args, **kwargs)  # torch fills by the mask, which waits for nothing
    full = watch.note(ROWS)
    wide: list[Tensor | None] = []
    for index in indices:
        wide += list(_places(index, full).unbind(1)) if any(index is mask for mask in masks) else [index]
    return func(args[0], wide, *args[2:], **kwargs)


def _checked(watch: Watch, func: Any, args: Any, kwargs: Any) -> Any:
    watch.note(CHECKED)
    return None if func._schema.name == "aten::_linalg_check_errors" else func(*args, **kwargs)


def _alike(watch: Watch, func: Any, args: Any, kwargs: Any) -> Any:
    """An operation that torch has not written for ``meta`` and that waits for nothing."""
    return torch.empty_like(args[0])


def _counted(watch: Watch, func: Any, args: Any, kwargs: Any) -> Any:
    watch.note(ROWS)
    return torch.empty(max(1, args[2] if len(args) > 2 else 0), dtype=torch.int64, device=META)


_ANSWERED = {
    "aten::_local_scalar_dense": _read,
    "aten::equal": _read,
    "aten::is_nonzero": _read,
    "aten::nonzero": _nonzero,
    "aten::masked_select": _flat,
    "aten::_unique2": _flat,
    "aten::unique_consecutive": _flat,
    "aten::unique_dim": _different,
    "aten::repeat_interleave": _repeated,
    "aten::index": _indexed,
    "aten::index_put": _indexed,
    "aten::index_put_": _indexed,
    "aten::_index_put_impl_": _indexed,
    "aten::bincount": _counted,
    "aten::_linalg_check_errors": _checked,
    "aten::multinomial": _checked,
    "aten::_sample_dirichlet": _alike,
    "aten::_dirichlet_grad": _alike,
}


class _MetaGenerator(torch.Generator):
    """A generator of the CPU that says it is of ``meta``, where torch has none and nothing is drawn."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Device of the stand-in."""
        return torch.device(META)


_REAL_GENERATOR = torch.Generator
_REAL_FORK = torch.random.fork_rng


def _generator(device: Any = "cpu") -> torch.Generator:
    return _MetaGenerator() if torch.device(device).type == META else _REAL_GENERATOR(device)


@contextmanager
def watched(allowed: Sequence[Allowed] = (), numbers: Numbers | None = None) -> Iterator[Watch]:
    """Watch over everything in the block; what was found is told afterwards, and nothing is raised."""
    watch = Watch(allowed, numbers)
    with _Functions(watch), _Operations(watch):
        yield watch


def _forked(devices: Any = None, **options: Any) -> Any:
    """Random numbers of the CPU put back after a block, as there are none on ``meta``."""
    return _REAL_FORK([] if devices == [META] else devices, **options)


def _fused_devices() -> list[str]:
    return [*_REAL_FUSED(), META]


_REAL_FUSED = optimizer._get_fused_kernels_supported_devices


@contextmanager
def device_in_place() -> Iterator[None]:
    """Let generators be made and forked on ``meta``, and optimisers and norms be fused there, as on a GPU."""
    with (
        patch.object(torch, "Generator", _generator),
        patch.object(torch.random, "fork_rng", _forked),
        patch.object(optimizer, "_get_fused_kernels_supported_devices", _fused_devices),
        patch.object(clip_grad, "_device_has_foreach_support", lambda device: True),
    ):
        yield

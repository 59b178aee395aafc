"""Position of each term in a flat observation, and its parts as the networks want them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gantry_deploy.contract.bev_layout import BevLayout
from gantry_deploy.contract.policy_contract import INSTRUCTION_TERM, MapWindow, PolicyContract
from gantry_hardware.errors import GantryError, UnknownNameError

MAP_TERM = "elevation_map"
"""Name of the observation term that holds the map window, flattened (rows, cols, channels)."""
RASTER_TERM = "bev"
"""Name of the observation term that holds a bird's-eye-view raster, flattened (channels, rows, cols)."""
RASTER_STEPS = 255
"""A raster's numbers are whole ones up to this; scaled by its inverse, networks see 0 to 1."""


@dataclass(frozen=True)
class TermSlice:
    """One term's place in a flat observation."""

    name: str
    """Name of the term."""
    start: int
    """First column."""
    size: int
    """Numbers in one frame."""
    history: int = 1
    """Frames, flattened oldest first."""

    @property
    def stop(self) -> int:
        """Column after the last one."""
        return self.start + self.size * self.history


@dataclass(frozen=True)
class ObservationLayout:
    """The terms of a flat observation (N, size) in order.

    Three parts are told apart: the map window, terms with history (*stacked*), and the rest (*current*).
    """

    terms: tuple[TermSlice, ...]
    """Every term in order."""
    window: MapWindow | None = None
    """Geometry of the map window, if a term holds one."""
    bev: BevLayout | None = None
    """Geometry of the raster, if a term holds one."""
    vocabulary: int = 0
    """Words that an instruction may use, if a term holds one."""

    @classmethod
    def from_contract(cls, contract: PolicyContract) -> ObservationLayout:
        """Read a contract's observation.

        Raises:
            GantryError: If the map term and the contract's window do not fit each other.
        """
        terms, start = [], 0
        for term in contract.observations:
            terms.append(TermSlice(term.name, start, term.size, term.history))
            start = terms[-1].stop
        words = 0 if contract.instruction is None else len(contract.instruction.vocabulary)
        return cls(tuple(terms), contract.map_window, getattr(contract.body, "bev", None), words)

    def __post_init__(self) -> None:
        for term in self.terms:
            if term.name == MAP_TERM:
                self._check_map(term)
            if term.name == RASTER_TERM:
                self._check_raster(term)

    def _check_map(self, term: TermSlice) -> None:
        if self.window is None:
            raise GantryError(f"The observation '{MAP_TERM}' needs a map window in the contract; it has none.")
        shape = (self.window.rows, self.window.cols, len(self.window.channels))
        if term.size != shape[0] * shape[1] * shape[2]:
            raise GantryError(
                f"The observation '{MAP_TERM}' has {term.size} numbers, the map window asks for "
                f"{shape[0]} x {shape[1]} cells x {shape[2]} channels = {shape[0] * shape[1] * shape[2]}."
            )
        if term.history != 1:
            raise GantryError(f"The observation '{MAP_TERM}' has a history of {term.history} frames, expected 1.")

    def _check_raster(self, term: TermSlice) -> None:
        if self.bev is None or term.size != self.bev.size or term.history != 1:
            asked = "none" if self.bev is None else f"{self.bev.shape} = {self.bev.size}"
            raise GantryError(
                f"The observation '{RASTER_TERM}' has {term.size} numbers in {term.history} frames, the contract's "
                f"raster is {asked}, expected one frame of it."
            )

    @property
    def size(self) -> int:
        """Columns of the flat observation."""
        return self.terms[-1].stop if self.terms else 0

    def term(self, name: str) -> TermSlice:
        """Look a term up.

        Raises:
            UnknownNameError: If there is no such term.
        """
        for term in self.terms:
            if term.name == name:
                return term
        raise UnknownNameError("observation", name, [term.name for term in self.terms])

    @property
    def has_map(self) -> bool:
        """Whether a map window is among the terms."""
        return any(term.name == MAP_TERM for term in self.terms)

    @property
    def current(self) -> tuple[TermSlice, ...]:
        """Terms of the newest frame alone, without the map."""
        return tuple(term for term in self.terms if term.history == 1 and term.name != MAP_TERM)

    @property
    def stacked(self) -> tuple[TermSlice, ...]:
        """Terms with history."""
        return tuple(term for term in self.terms if term.history > 1)

    @property
    def history(self) -> int:
        """Frames of the stacked terms; 1 without any.

        Raises:
            GantryError: If their histories differ in length.
        """
        lengths = {term.history for term in self.stacked} or {1}
        if len(lengths) > 1:
            listed = ", ".join(f"'{term.name}' {term.history}" for term in self.stacked)
            raise GantryError(f"Histories differ in length ({listed}); a network needs one length.")
        return lengths.pop()

    @property
    def current_size(self) -> int:
        """Numbers in the current terms."""
        return sum(term.size for term in self.current)

    @property
    def frame_size(self) -> int:
        """Numbers in one frame of the stacked terms."""
        return sum(term.size for term in self.stacked)

    def grid(self, observation: Tensor) -> Tensor:
        """The map window of observations (N, size) as (N, rows, cols, channels).

        Raises:
            GantryError: If the observation has none.
        """
        window = self.require_window()
        term = self.term(MAP_TERM)
        cells = observation[:, term.start : term.stop]
        return cells.reshape(-1, window.rows, window.cols, len(window.channels))

    def raster(self, observation: Tensor) -> Tensor:
        """The raster of observations (N, size) as (N, channels, rows, cols).

        Raises:
            GantryError: If the observation has none.
        """
        shape = self.require_raster().shape
        term = self.term(RASTER_TERM)
        return observation[:, term.start : term.stop].reshape(-1, *shape)

    def all_but_raster(self, observation: Tensor) -> Tensor:
        """All other columns of observations (N, size), in order."""
        return _columns(observation, tuple(term for term in self.terms if term.name != RASTER_TERM))

    def require_raster(self) -> BevLayout:
        """The raster's geometry.

        Raises:
            GantryError: If the observation has none.
        """
        if self.bev is None or all(term.name != RASTER_TERM for term in self.terms):
            listed = ", ".join(term.name for term in self.terms)
            raise GantryError(
                f"This network looks at a raster: expected an observation '{RASTER_TERM}' among {listed}."
            )
        return self.bev

    def require_instruction(self) -> TermSlice:
        """Place of the instruction's tokens.

        Raises:
            GantryError: If the observation has none.
        """
        for term in self.terms:
            if term.name == INSTRUCTION_TERM and self.vocabulary:
                return term
        listed = ", ".join(term.name for term in self.terms)
        raise GantryError(
            f"This network reads an instruction: expected an observation '{INSTRUCTION_TERM}' among {listed}."
        )

    def with_more(self, name: str, size: int) -> ObservationLayout:
        """The same followed by further columns."""
        return replace(self, terms=(*self.terms, TermSlice(name, self.size, size)))

    def current_of(self, observation: Tensor) -> Tensor:
        """The current terms of observations (N, size), side by side, (N, current_size)."""
        return _columns(observation, self.current)

    def frames_of(self, observation: Tensor) -> Tensor:
        """The stacked terms of observations (N, size) as frames (N, history, frame_size), oldest first."""
        blocks = [observation[:, term.start : term.stop].reshape(-1, self.history, term.size) for term in self.stacked]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=-1)

    def require_window(self) -> MapWindow:
        """The map window.

        Raises:
            GantryError: If the observation has none.
        """
        if self.window is None or not self.has_map:
            listed = ", ".join(term.name for term in self.terms)
            raise GantryError(f"This network looks at a map: expected an observation '{MAP_TERM}' among {listed}.")
        return self.window

    def cell_centers(self) -> Tensor:
        """Cell centres of the map window in the base's yaw frame, (rows * cols, 2), m, row-major.

        Raises:
            GantryError: If the observation has no map.
        """
        window = self.require_window()
        x = window.center_x_m + (torch.arange(window.rows) - (window.rows - 1) / 2) * window.resolution_m
        y = window.center_y_m + (torch.arange(window.cols) - (window.cols - 1) / 2) * window.resolution_m
        return torch.stack(torch.meshgrid(x, y, indexing="ij"), dim=-1).reshape(-1, 2)


def _columns(observation: Tensor, terms: tuple[TermSlice, ...]) -> Tensor:
    """Columns of some terms; neighbours are taken in one slice, which saves copies."""
    spans: list[list[int]] = []
    for term in terms:
        if spans and spans[-1][1] == term.start:
            spans[-1][1] = term.stop
        else:
            spans.append([term.start, term.stop])
    parts = [observation[:, start:stop] for start, stop in spans] or [observation[:, :0]]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

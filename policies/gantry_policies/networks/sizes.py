"""Widths of the perceptive networks, apart from the modules so that configurations need not build any."""

from __future__ import annotations

from dataclasses import dataclass

from gantry_hardware.errors import GantryError


@dataclass(frozen=True)
class BevNetCfg:
    """Sizes of the encoder of a bird's-eye-view raster."""

    first_channels: int = 8
    """Channels of the first convolution; every further one has twice as many."""
    most_channels: int = 256
    """No convolution has more."""
    rest: tuple[int, ...] = (256, 256)
    """Layers over the terms beside the raster."""
    both: tuple[int, ...] = (512, 256)
    """Layers over both."""

    @classmethod
    def small(cls) -> BevNetCfg:
        """For rasters of 64 pixels and two CPU cores."""
        return cls(first_channels=8, most_channels=64, rest=(64,), both=(128,))

    def __post_init__(self) -> None:
        for name in ("first_channels", "most_channels"):
            if getattr(self, name) < 1:
                raise GantryError(f"bev.{name} is {getattr(self, name)}, expected at least 1.")
        for name in ("rest", "both"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise GantryError(f"bev.{name} is {list(getattr(self, name))}, expected widths of at least 1.")


@dataclass(frozen=True)
class KeypointsCfg:
    """Sizes of the encoder of each camera's picture by key points."""

    stem_width: int = 16
    """Channels of the first convolution."""
    stem_stride: int = 2
    """Pixels between places of the first convolution: 2 for pictures of about 48 pixels, 4 for 84. The second one has
    twice as many between its own."""
    width: int = 32
    """Channels of the other two."""
    keypoints: int = 24
    """Places in the picture that are told."""

    def __post_init__(self) -> None:
        for name in ("stem_width", "width", "keypoints"):
            size = getattr(self, name)
            if size < 1:
                raise GantryError(f"Key points: {name} is {size}, expected at least 1.")
            if name != "keypoints" and size > 8 and size % 8:
                raise GantryError(f"Key points: {name} is {size}, expected at most 8, or a multiple of 8.")
        if self.stem_stride not in (2, 4):
            raise GantryError(f"Key points: stem_stride is {self.stem_stride}, expected 2 or 4.")


@dataclass(frozen=True)
class WordsNetCfg:
    """Sizes of the encoder of flat numbers under an instruction."""

    width: int = 32
    """Numbers of a word."""
    heads: int = 2
    """Heads of the attention between words; they divide ``width``."""
    layers: int = 1
    """Layers in which words attend to each other."""
    hidden: tuple[int, ...] = (128,)
    """Layers over the numbers, each scaled and shifted by the words."""

    def __post_init__(self) -> None:
        if self.heads < 1 or self.width < 1 or self.width % self.heads:
            raise GantryError(f"words.heads is {self.heads}, expected a divisor of words.width {self.width}.")
        if self.layers < 0:
            raise GantryError(f"words.layers is {self.layers}, expected 0 or more.")
        if not self.hidden or min(self.hidden) < 1:
            raise GantryError(f"words.hidden is {list(self.hidden)}, expected widths of at least 1.")


@dataclass(frozen=True)
class AmeCfg:
    """Sizes of the AME-2 encoder; the defaults are the paper's (``paper()``). The AME-1 encoder and the scan MLP take
    theirs from here too, so that all of them can be compared at one size."""

    cell_width: int = 16
    """Features of the linear map on each cell's coordinates and channels (step a)."""
    conv_channels: tuple[int, ...] = (8, 48)
    """Channels of the convolutions (step b)."""
    kernel: int = 5
    """Edge of the convolutions' kernels, odd."""
    token_width: int = 96
    """Width of a token, and of the attention (steps c, g)."""
    heads: int = 32
    """Heads of the attention; they divide ``token_width``."""
    global_width: int = 64
    """Width of the global feature and of the layer before it (step d)."""
    proprio_width: int = 128
    """Width of the proprioceptive embedding (step e)."""
    hidden: tuple[int, ...] = (512, 512)
    """Hidden layers of the proprioceptive and query networks (steps e, f)."""
    long_channels: int = 16
    """Channels of the convolution over the history."""
    long_kernel: int = 5
    """Frames that this convolution spans."""
    long_width: int = 64
    """Width that the long history is reduced to."""
    short_frames: int = 3
    """Newest frames that are taken in full."""
    short_width: int = 60
    """Width that these are reduced to."""
    score_gain: float = 1.0
    """Factor on the attention's scores. Plain initial weights make scores that differ by a thousandth between cells, so
    that attention is an average for millions of steps; a gain of some hundreds would make the differences about one."""

    @classmethod
    def paper(cls) -> AmeCfg:
        """The sizes of AME-2 (arXiv 2601.08485): 1.25 M parameters for a teacher with twelve joints."""
        return cls()

    @classmethod
    def small(cls) -> AmeCfg:
        """For two CPU cores and a window of about 100 cells."""
        return cls(
            cell_width=8,
            conv_channels=(8, 8),
            kernel=3,
            token_width=32,
            heads=8,
            score_gain=50.0,
            global_width=16,
            proprio_width=64,
            hidden=(128,),
            long_channels=8,
            long_width=32,
            short_width=32,
        )

    def __post_init__(self) -> None:
        if self.kernel % 2 == 0 or self.kernel < 1:
            raise GantryError(f"ame.kernel is {self.kernel}, expected an odd number: windows keep their size.")
        if self.heads < 1 or self.token_width % self.heads:
            raise GantryError(f"ame.heads is {self.heads}, expected a divisor of ame.token_width {self.token_width}.")
        if not self.score_gain > 0.0:
            raise GantryError(f"ame.score_gain is {self.score_gain}, expected a number > 0.")
        for name in ("conv_channels", "hidden"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise GantryError(f"ame.{name} is {list(getattr(self, name))}, expected widths of at least 1.")
        for name in ("cell_width", "global_width", "proprio_width", "long_channels", "long_kernel", "short_frames"):
            if getattr(self, name) < 1:
                raise GantryError(f"ame.{name} is {getattr(self, name)}, expected at least 1.")

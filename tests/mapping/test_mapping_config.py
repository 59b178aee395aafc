"""Mapping configurations from YAML."""

from dataclasses import fields, replace
from typing import get_args, get_type_hints

import pytest
import yaml

from gantry_hardware.errors import GantryError, UnknownNameError
from gantry_hardware.files.structured import ConfigError
from gantry_hardware.robots.go2 import SPEC
from gantry_mapping.config import (
    GO2_FULL,
    GO2_SMALL,
    KalmanCfg,
    MappingCfg,
    SensorModelCfg,
    WinnerTakeAllCfg,
    load_mapping_cfg,
)
from gantry_mapping.elevation.grid import GridSpec
from gantry_mapping.sensing.camera import REALSENSE_LIKE


def load(tmp_path, text):
    path = tmp_path / "map.yaml"
    path.write_text(text, encoding="utf-8")
    return load_mapping_cfg(path)


def test_what_is_left_out_keeps_its_default(tmp_path):
    assert load(tmp_path, "") == MappingCfg()
    cfg = load(tmp_path, "fusion: kalman\nlocal_grid: {rows: 5, cols: 4, resolution_m: 0.1}\nkalman: {gate_sigma: 2}")
    assert cfg.fusion == "kalman"
    assert cfg.kalman.gate_sigma == 2.0
    assert cfg.local_grid == GridSpec(5, 4, 0.1)
    assert cfg.cameras == MappingCfg().cameras


def test_cameras_in_full(tmp_path):
    camera = {"width": 4, "height": 3, "fx": 2, "fy": 2, "cx": 1.5, "cy": 1, "pos_camera_in_base_m": [0.1, 0, 0]}
    cfg = load(tmp_path, yaml.safe_dump({"cameras": [camera, camera]}))
    assert len(cfg.cameras) == 2
    assert cfg.cameras[1].pos_camera_in_base_m == (0.1, 0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fusoin: wta", "Unknown field in map.yaml 'fusoin'. Did you mean 'fusion'"),
        ("kalman: {gate: 1}", "Unknown field in map.yaml.kalman 'gate'"),
        ("map_size_m: big", "map.yaml.map_size_m is 'big', expected a number"),
        ("map_size_m: -1", "map_size_m is -1.0, expected a number from 0.1 to 200"),
        ("local_grid: {rows: 5}", "map.yaml.local_grid lacks fields"),
        ("recenter_fraction: 0.7", "recenter_fraction is 0.7, expected a number from 0.001 to 0.499"),
        ("window_points: 2", "window_points is 2, expected an odd number"),
        ("window_drop_m: -1", "window_drop_m is -1.0, expected a number from 0 to 10"),
        ("carving_reach_m: .inf", "map.yaml, line 1: 'carving_reach_m' is .inf, expected a finite number"),
        ("kalman:\n  gate_m: .nan", "map.yaml, line 2: 'kalman.gate_m' is .nan"),
        ("map_size_m: 4\nmap_size_m: 8", "map.yaml, line 2: 'map_size_m' is there twice, first in line 1"),
        ("cameras: [{width: 1, width: 2}]", "map.yaml, line 1: 'cameras[0].width' is there twice"),
        ("a: " + "[" * 100000, "line 1: more than 32 lists and mappings inside one another"),
        ("a: &a [*a]", "more than 32 lists and mappings"),
        (
            "a: &a [1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
            "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]",
            "more than 100000 values",
        ),
        ("map_size_m: 4\n---\nmap_size_m: 8", "line 3: a second document begins"),
        ("map_size_m: !!python/object:os.system 1", "no YAML"),
        ("map_size_m: 2026-13-77", "no YAML"),
        ("lowest_m: -3", "lowest_m is -3.0"),
        ("{lowest_m: 0.5, highest_m: 0.4}", "expected -2 < lowest_m < highest_m"),
        ("{map_size_m: 100, map_resolution_m: 0.01}", "a map of 10000 cells along an edge, allowed are 4096"),
        ("kalman: {gate_sigma: 1.0e+300}", "kalman.gate_sigma is 1e+300, expected a number from"),
        ("wta: {least_ratio: 1.0e+300}", "wta.least_ratio is 1e+300, expected a number from"),
        ("sensor: {std_m: -1}", "sensor.std_m is -1.0, expected a number from"),
        ("- 1", "expected an object"),
        ("a: [", "Cannot read the mapping configuration"),
    ],
)
def test_errors_name_the_field(tmp_path, text, message):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)


def test_no_file_and_no_such_fusion(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        load_mapping_cfg(tmp_path / "absent.yaml")
    with pytest.raises(UnknownNameError, match="Available: kalman, wta"):
        load(tmp_path, "fusion: winner")


def test_presets():
    assert (GO2_FULL.map_cells, GO2_SMALL.map_cells) == (200, 100)
    assert GO2_FULL.nominal_base_height_m == SPEC.base_height_m


def numeric_fields(cls):
    hints = get_type_hints(cls)
    for item in fields(cls):
        kinds = {hints[item.name], *get_args(hints[item.name])}
        if kinds & {int, float}:
            yield item.name


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e300, -1e300])
@pytest.mark.parametrize(
    "part",
    [GO2_FULL, WinnerTakeAllCfg(), KalmanCfg(), SensorModelCfg(), GO2_FULL.local_grid, REALSENSE_LIKE],
    ids=lambda part: type(part).__name__,
)
def test_every_number_is_finite_and_bounded(part, value):
    for name in numeric_fields(type(part)):
        old = getattr(part, name)
        with pytest.raises(GantryError, match=f"{name}.* is .*, expected"):
            replace(part, **{name: (value, *old[1:]) if isinstance(old, tuple) else value})

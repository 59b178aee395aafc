"""Visuals of a scene: floor, sky, light, and a Go2 drawn from simple shapes. Nothing here touches anything."""

from __future__ import annotations

import mujoco

VISUAL_GROUP = 2
"""Geom group of shapes that are only looked at."""

FLOOR_SIZE_M = (0.0, 0.0, 0.05)
"""Half sizes of the floor, zero meaning infinite, and the spacing of its drawing."""

MAX_PICTURE_PX = (1920, 1080)
"""Largest width and height of a picture."""

LIGHT_RGBA = (0.86, 0.87, 0.89, 1.0)
"""Covers."""
DARK_RGBA = (0.2, 0.21, 0.23, 1.0)
"""Motors and frame."""
ACCENT_RGBA = (0.16, 0.5, 0.73, 1.0)
"""Colour that shows the forward direction."""
RUBBER_RGBA = (0.08, 0.08, 0.08, 1.0)
"""Feet."""

_BOX = mujoco.mjtGeom.mjGEOM_BOX
_SPHERE = mujoco.mjtGeom.mjGEOM_SPHERE
_CAPSULE = mujoco.mjtGeom.mjGEOM_CAPSULE
_CYLINDER = mujoco.mjtGeom.mjGEOM_CYLINDER


def add_floor(model: mujoco.MjSpec) -> None:
    """An endless checkered floor called ``floor``; a square is half a metre wide, so that motion shows."""
    texture = model.add_texture(
        name="floor_checker",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=[0.36, 0.42, 0.47],
        rgb2=[0.46, 0.52, 0.57],
        width=256,
        height=256,
    )
    material = model.add_material(name="floor", texrepeat=[1.0, 1.0], texuniform=True, reflectance=0.0)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = texture.name
    model.worldbody.add_geom(
        name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=list(FLOOR_SIZE_M), material=material.name
    )


def add_sky_and_light(model: mujoco.MjSpec) -> None:
    """A pale sky, one light without shadows, and room for pictures of up to :data:`MAX_PICTURE_PX`."""
    model.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.83, 0.89, 0.94],
        rgb2=[0.97, 0.98, 1.0],
        width=256,
        height=256,
    )
    model.worldbody.add_light(
        name="sun",
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        pos=[0.0, 0.0, 4.0],
        dir=[0.3, 0.4, -1.0],
        diffuse=[0.6, 0.6, 0.6],
        castshadow=False,
    )
    model.visual.headlight.ambient = [0.45, 0.45, 0.45]
    model.visual.headlight.diffuse = [0.35, 0.35, 0.35]
    model.visual.headlight.specular = [0.05, 0.05, 0.05]
    model.visual.global_.offwidth, model.visual.global_.offheight = MAX_PICTURE_PX


def remove_visuals(model: mujoco.MjSpec) -> None:
    """Drop every shape that is only looked at, and the meshes that nothing collides with."""
    for geom in list(model.geoms):
        if geom.group == VISUAL_GROUP:
            model.delete(geom)
    used = {geom.meshname for geom in model.geoms}
    for mesh in list(model.meshes):
        if mesh.name not in used:
            model.delete(mesh)


def dress_go2(model: mujoco.MjSpec) -> None:
    """Draw the Go2, whose model has collision shapes only."""
    base = model.body("base")
    _bar(base, (-0.16, 0.0, 0.0), (0.17, 0.0, 0.0), 0.062, LIGHT_RGBA)
    _box(base, (0.155, 0.07, 0.035), (0.0, 0.0, -0.008), LIGHT_RGBA)
    _box(base, (0.12, 0.05, 0.01), (-0.01, 0.0, 0.06), DARK_RGBA)
    _box(base, (0.04, 0.045, 0.045), (0.24, 0.0, 0.005), DARK_RGBA)
    _bar(base, (0.285, -0.03, 0.015), (0.285, 0.03, 0.015), 0.034, ACCENT_RGBA)
    _shape(base, _SPHERE, DARK_RGBA, pos=[0.285, 0.0, -0.045], size=[0.036, 0.0, 0.0])
    for leg in ("FR", "FL", "RR", "RL"):
        side = -1.0 if leg.endswith("R") else 1.0
        end = 1.0 if leg.startswith("F") else -1.0
        hip, thigh, calf = (model.body(f"{leg}_{part}") for part in ("hip", "thigh", "calf"))
        _disc(hip, (-0.06 * end, 0.0, 0.0), (0.0, 0.0, 0.0), 0.046, DARK_RGBA)
        _disc(hip, (0.0, 0.015 * side, 0.0), (0.0, 0.08 * side, 0.0), 0.046, DARK_RGBA)
        _disc(thigh, (0.0, -0.018 * side, 0.0), (0.0, 0.028 * side, 0.0), 0.047, LIGHT_RGBA)
        _bar(thigh, (0.004, 0.0, -0.03), (-0.002, 0.0, -0.205), 0.023, LIGHT_RGBA)
        _disc(calf, (0.0, -0.02, 0.0), (0.0, 0.02, 0.0), 0.026, DARK_RGBA)
        _bar(calf, (0.0, 0.0, 0.0), (0.012, 0.0, -0.12), 0.014, DARK_RGBA)
        _bar(calf, (0.012, 0.0, -0.12), (-0.002, 0.0, -0.205), 0.011, DARK_RGBA)
        _shape(calf, _SPHERE, RUBBER_RGBA, pos=[-0.002, 0.0, -0.213], size=[0.0222, 0.0, 0.0])


Triple = tuple[float, float, float]


def _bar(body: mujoco.MjsBody, start_m: Triple, end_m: Triple, radius_m: float, rgba: tuple[float, ...]) -> None:
    _shape(body, _CAPSULE, rgba, fromto=[*start_m, *end_m], size=[radius_m, 0.0, 0.0])


def _disc(body: mujoco.MjsBody, start_m: Triple, end_m: Triple, radius_m: float, rgba: tuple[float, ...]) -> None:
    _shape(body, _CYLINDER, rgba, fromto=[*start_m, *end_m], size=[radius_m, 0.0, 0.0])


def _box(body: mujoco.MjsBody, half_sizes_m: Triple, pos_m: Triple, rgba: tuple[float, ...]) -> None:
    _shape(body, _BOX, rgba, pos=list(pos_m), size=list(half_sizes_m))


def _shape(body: mujoco.MjsBody, shape: mujoco.mjtGeom, rgba: tuple[float, ...], **where: list[float]) -> None:
    body.add_geom(type=shape, rgba=list(rgba), group=VISUAL_GROUP, contype=0, conaffinity=0, mass=0.0, **where)

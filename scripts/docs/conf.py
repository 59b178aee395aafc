"""Sphinx configuration of the site; ``scripts/docs`` writes the pages that it reads."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).resolve().parent))

from references import definition_of  # noqa: E402

project = "Gantry"
author = "The Gantry authors"
copyright = "The Gantry authors, Apache-2.0"
extensions = ["myst_parser", "autoapi.extension"]

smartquotes = False  # Two hyphens are an option's.
myst_heading_anchors = 4

suppress_warnings = [
    "myst.header",  # Sections of a changelog begin where they like.
    "autoapi.python_import_resolution",  # Constants that are assigned as a tuple are not seen by it.
    "ref.python",  # Types of the same name in several modules: the nearest is taken.
]

# References to what is not ours lead nowhere, since no other project's inventory is fetched; ours are checked.
nitpick_ignore_regex = [
    ("py:.*", r"(?!gantry_).*"),
    ("py:.*", r"gantry_deploy\.link\.protocol\.corrections_pb2\..*"),  # Made by protoc, without docstrings.
]

# Read, never imported: learning libraries and simulators need not be there.
PACKAGE = os.environ.get("GANTRY_DOCS_PACKAGE", "")
autoapi_dirs = [
    str(ROOT / folder)
    for folder in (
        "hardware/gantry_hardware",
        "mapping/gantry_mapping",
        "deploy/gantry_deploy",
        "policies/gantry_policies",
        "sim/gantry_sim",
        "ros_ws/src/gantry_ros/gantry_ros",
        "ros_ws/src/gantry_bringup/gantry_bringup",
    )
    if folder.endswith(PACKAGE)
]
autoapi_template_dir = str(ROOT / "scripts" / "docs" / "templates")
autoapi_root = "api"
autoapi_options = ["members", "undoc-members"]
autoapi_keep_files = True
autoapi_member_order = "bysource"
autodoc_typehints = "signature"

html_theme = "furo"
html_title = "Gantry"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_last_updated_fmt = None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what this file adds to Sphinx."""
    app.connect("autodoc-process-docstring", google_sections)
    app.connect("missing-reference", where_it_is_defined)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def google_sections(app: Sphinx, what: Any, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the sections of a docstring (Args, Returns, Raises) into fields.

    Napoleon alone would take the docstring of an attribute up to its first colon for a type.
    """
    if what not in ("attribute", "data", "property"):
        settings: Any = Config()
        lines[:] = GoogleDocstring(lines, settings, app, what, name, obj, options).lines()


def where_it_is_defined(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.TextElement) -> Any:
    """Link a name that its module has imported to its definition, which alone has an entry; also aliases of types."""
    if node.get("refdomain") != "py":
        return None
    target = definition_of(node["reftarget"])
    python = env.domains.python_domain
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, text)

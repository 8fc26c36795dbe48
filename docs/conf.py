"""How `sphinx-build docs OUT` makes the site: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import hlo_lint

project = "hlo_lint"
version = release = hlo_lint.__version__
copyright = "the authors of hlo_lint, Apache-2.0"

extensions = [
    "lexers",
    "markdown_docstrings",
    "myst_parser",
    "repository_links",
    "sphinx.ext.autodoc",
    "sphinx_click",
]
exclude_patterns = ["_ext"]

html_theme = "furo"
html_title = f"hlo_lint {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False

highlight_language = "none"
default_role = "literal"
toc_object_entries_show_parents = "hide"

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
add_module_names = False

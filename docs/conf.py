"""Settings of Sphinx: `make docs` builds the pages into build/docs, and a warning is an error."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from generated import escape, fill  # noqa: E402

project = "mpibow"
copyright = "the authors of mpibow"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3  # a link to page.md#section is checked

default_role = "code"  # docstrings mark code as Markdown does
autodoc_typehints = "none"
autodoc_member_order = "bysource"
add_module_names = False
maximum_signature_line_length = 100

html_theme = "furo"
html_title = "mpibow"
html_copy_source = False
html_show_sphinx = False


def setup(app):
    app.connect("source-read", fill)
    app.connect("autodoc-process-docstring", escape)

"""Settings of Sphinx: `make docs` builds the pages into build/docs, and a warning is an error."""

project = "mpibow"
copyright = "the authors of mpibow"
extensions = ["myst_parser"]
myst_heading_anchors = 3  # a link to page.md#section is checked

html_theme = "furo"
html_title = "mpibow"
html_copy_source = False
html_show_sphinx = False

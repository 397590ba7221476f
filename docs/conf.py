"""The documentation site. `make docs` builds it into build/site, without a network."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import seqmed  # noqa: E402

project = "seqmed"
author = "The seqmed developers"
copyright = "The seqmed developers, BSD-3-Clause"
version = release = seqmed.__version__
language = "en"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
    "accessible",
    "benchmark_data",
    "command_reference",
    "llms",
    "mathml",
    "one_source",
]
exclude_patterns = [
    "_ext",
    "_templates",
    "figures.py",
    "gallery/**/*.ipynb",
    "gallery/**/*.py",
    "gallery/**/*.md5",
]
templates_path = ["_templates"]
default_role = "literal"
nitpicky = True
smartquotes = False  # quotes of code are copied
nitpick_ignore_regex = [
    ("py:obj", r"sklearn\..*"),  # pages of another site
    ("py:obj", r"\w+_|named_steps"),  # fitted attributes, which are described in their class
]
suppress_warnings = [
    "config.cache",  # the order of the gallery is a class
]

# -- Markdown --------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# -- docstrings ------------------------------------------------------------------------------------

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_mock_imports = ["capymoa"]  # optional, and needs Java
autodoc_typehints = "none"  # numpydoc says the types in words
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False


def skip_member(app, kind, name, thing, skip, options):
    """Leave out what other packages define, and attributes: docstrings list them."""
    if isinstance(thing, property):
        return True
    module = getattr(thing, "__module__", None) or ""
    return True if not module.startswith("seqmed") else None


def setup(app):
    """Choose the members of classes that have a place on their pages."""
    app.connect("autodoc-skip-member", skip_member)


# -- gallery: executed scripts ---------------------------------------------------------------------

ORDER = [
    "plot_unlabeled.py", "plot_digits.py", "plot_text.py", "plot_table.py", "plot_queries.py",
    "plot_late_labels.py", "plot_change.py", "plot_explain.py", "plot_parameters.py",
    "plot_many_rows.py", "plot_paper.py",
]  # fmt: skip


def place(name: str) -> int:
    """Return the place of a script in the gallery."""
    return ORDER.index(Path(name).name)


class ByOrder:
    """The order of the scripts in the gallery."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> int:
        """Return the place of a script."""
        return place(name)

    def __repr__(self) -> str:
        return "ByOrder"


sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "within_subsection_order": ByOrder,
    "doc_module": ("seqmed",),
    "backreferences_dir": "gallery/backreferences",
    "reference_url": {"seqmed": None},
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 1000,
    "write_computation_times": False,
    "remove_config_comments": True,
    "parallel": int(os.environ.get("SEQMED_DOCS_JOBS", "2")),
    "notebook_extensions": set(),
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "capture_repr": (),
}
warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")

# -- pages -----------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "seqmed"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = True
html_show_sourcelink = False
html_show_sphinx = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "seqmed"},
    "header_links_before_dropdown": 8,
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "back_to_top_button": False,
    "navigation_with_keys": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "use_edit_page_button": False,
}
html_sidebars = {"index": [], "faq": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_copy_empty_lines = False

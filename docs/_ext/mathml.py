"""Mathematics as MathML, which browsers show without a script."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def visit(translator: Any, node: nodes.Element) -> None:
    """Write a formula of a line."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.Element) -> None:
    """Write a formula of its own."""
    # The frame scrolls on narrow screens, by keyboard too.
    translator.body.append('<div class="formula" role="group" aria-label="formula" tabindex="0">')
    translator.body.append(tex2mathml(node.astext(), as_block=True) + "</div>")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Add the renderer; `html_math_renderer` chooses it."""
    app.add_html_math_renderer("mathml", (visit, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

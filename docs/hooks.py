"""What MkDocs does besides: above all, the figures in plots/figures/ become part of the site.

Pages link to them where they lie, so that the links also work where the pages are read as files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

FIGURES = Path(__file__).resolve().parents[1] / "plots" / "figures"
LINK = re.compile(r"(?:\.\./)+plots/figures/([\w.]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add the figures that pages show."""
    texts = (file.content_string for file in files.documentation_pages())
    for name in sorted({name for text in texts for name in LINK.findall(text)}):
        files.append(File.generated(config, f"figures/{name}", abs_src_path=str(FIGURES / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point a page's links at the figures in the site."""
    return LINK.sub(rf"{'../' * page.file.src_uri.count('/')}figures/\1", markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Leave out what constructors say to linters only; the class says the rest."""
    return html.replace("<p>See the class docstring.</p>", "")

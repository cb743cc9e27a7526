"""Hooks of mkdocs: the repository's pages, wherever they are, as one tree.

Pages link to each other as they lie in the repository, to be read there, too.
Pages are copied in their places; links to anything else become its name.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

PAGES = ("*.md", "docs/**/*.md", "docs/**/*.ipynb", "simulations/deploy/*.md")
PICTURES = ("docs/**/*.svg", "docs/**/*.png")
ASSETS = ("docs/site.css", "docs/iframe-worker.js")

OUTSIDE = re.compile(r"<(?:script|link|img)\b[^>]*\b(?:src|href)=\"(https?:[^\"]*)")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]*)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Copy pages, pictures, style and script to where mkdocs takes them from."""
    target = Path(config.docs_dir)
    shutil.rmtree(target, ignore_errors=True)
    for pattern in (*PAGES, *PICTURES, *ASSETS):
        for path in ROOT.glob(pattern):
            copy = target / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    methods = sorted(target.glob("docs/methods/[!R]*.md"))
    (section,) = (each["Methods"] for each in config.nav if "Methods" in each)
    pages = [{path.stem: str(path.relative_to(target))} for path in methods]
    section.append({"Each method": pages})
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Leave of a link to what is no page of the site its name."""
    folder = Path(config.docs_dir, page.file.src_uri).parent

    def keep(match: re.Match[str]) -> str:
        name, place, _ = match.groups()
        there = (folder / place).resolve()
        return match.group() if there.is_file() else name

    return LINK.sub(keep, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse a page that loads anything from another server."""
    if found := OUTSIDE.findall(output):
        raise ValueError(f"{page.file.src_uri} loads {', '.join(found)}")
    return output

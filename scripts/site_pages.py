"""What MkDocs is told about the documents that lie outside of docs/: a hook of ``mkdocs.yml``.

People read the documents in the repository first, so their links are those of the repository. For the site,

- READMEs and the changelog become pages beside those of docs/ (`PIECES`);
- the reference gets the options of all commands;
- links between documents lead to the pages that were made of them;
- a link to any other file of the repository becomes the file's path, as text: the site does not have the file;
- a Mermaid diagram, which GitHub draws, becomes the picture that `scripts/diagrams.py` has drawn of it;
- each page is there as Markdown too, and ``llms.txt`` lists these (https://llmstxt.org), for agents.

A link to a file that does not exist is left as it is, and the strict build fails on it.
"""

from __future__ import annotations

import os
import posixpath
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs"
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<path>[^()\s#]*)(?P<place>#[^()\s]*)?\)")
DIAGRAMS = runpy.run_path(str(Path(__file__).with_name("diagrams.py")))
ELSEWHERE = re.compile(r"[a-z]+:")


# Page → the document outside of docs/ that it is made of.
PIECES = {
    "index.md": "README.md",
    "data.md": "examples/README.md",
    "benchmarks.md": "benchmarks/README.md",
    "changelog.md": "CHANGELOG.md",
}

LISTED = runpy.run_path(str(Path(__file__).with_name("settings_pages.py")))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of `PIECES` to those of docs/."""
    from mkdocs.structure.files import File  # here, because the links need no MkDocs

    for page, source in PIECES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


TEXTS: dict[str, tuple[str, str]] = {}
"""Page → its title and its Markdown."""


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs' names
    """Turn the links of a page into those of the site."""
    uri = page.file.src_uri
    text = for_site(LISTED["with_listing"](markdown, "commands") if uri == "reference.md" else markdown, uri)
    TEXTS[uri] = (str(page.title), text)
    return text


def on_post_build(config: MkDocsConfig) -> None:
    """Put the Markdown of every page beside it, and list all of them."""
    site = Path(config.site_dir)
    for uri, (_, text) in TEXTS.items():
        (site / uri).write_text(text, encoding="utf-8")
    head = f"# {config.site_name}\n\n> {config.site_description}\n\n## Pages\n\n"
    lines = "".join(f"- [{title}]({uri})\n" for uri, (title, _) in TEXTS.items())
    (site / "llms.txt").write_text(head + lines, encoding="utf-8")


def for_site(markdown: str, page: str) -> str:
    """Return the Markdown of a page with the links that it has in the site; code stays as it is."""
    source = PIECES.get(page, f"{DOCS}/{page}")
    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(lambda link: _link(link, source), part) for part in parts[::2]]
    parts[1::2] = [DIAGRAMS["BLOCK"].sub(_picture, part) for part in parts[1::2]]
    return "".join(parts)


def _picture(block: re.Match[str]) -> str:
    """Return the picture of a diagram, as Markdown.

    Raises:
        ValueError: There is none of this version of the diagram.
    """
    path, title = DIAGRAMS["diagram_file"](block["source"]), DIAGRAMS["diagram_title"](block["source"])
    if not (ROOT / DOCS / path).is_file():
        raise ValueError(
            f"the diagram {title!r} has changed: .venv/bin/python scripts/diagrams.py draws it for the site"
        )
    return f"![{title}]({path})"


def _link(link: re.Match[str], source: str) -> str:
    path, place = link["path"], link["place"] or ""
    if ELSEWHERE.match(path):
        return link[0]
    goal = posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source
    page = _page_of(goal)
    if page is not None:
        return f"{link['image']}[{link['text']}]({page}{place})"
    if os.path.lexists(ROOT / goal):
        return link["text"] if link["text"].strip("`") == goal else f"{link['text']} (`{goal}`)"
    return link[0]


def _page_of(goal: str) -> str | None:
    """Return the file of the site that a path of the repository became; None: it is not in the site."""
    for page, source in PIECES.items():
        if source == goal:
            return page
    return posixpath.relpath(goal, DOCS) if goal.startswith(f"{DOCS}/") and (ROOT / goal).exists() else None

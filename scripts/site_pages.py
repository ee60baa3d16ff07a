"""Build the site of the documents, below ``build/``: ``python scripts/site_pages.py``, as ``make docs`` does.

People read the documents in the repository first, so their links are those of the repository. For the site,

- READMEs and the changelog become pages beside those of docs/ (`PIECES`);
- the reference gets the options of all commands;
- links between documents lead to the pages that were made of them;
- a link to any other file of the repository becomes the file's path, as text: the site does not have the file;
- a Mermaid diagram, which GitHub draws, becomes the picture that `scripts/diagrams.py` has drawn of it;
- an equation in LaTeX, which GitHub typesets, becomes MathML, which browsers typeset without a script;
- each page is there as Markdown too, and ``llms.txt`` lists these (https://llmstxt.org), for agents.

Zensical then builds the pages by ``mkdocs.yml``. A link that leads nowhere ends the build.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs"
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<path>[^()\s#]*)(?P<place>#[^()\s]*)?\)")
DIAGRAMS = runpy.run_path(str(Path(__file__).with_name("diagrams.py")))
ELSEWHERE = re.compile(r"[a-z]+:")
EQUATION = re.compile(r'<(?P<tag>span|div) class="arithmatex">\s*\\[(\[](?P<latex>.*?)\\[)\]]\s*</(?P=tag)>', re.DOTALL)


# Page → the document outside of docs/ that it is made of.
PIECES = {
    "index.md": "README.md",
    "data.md": "examples/README.md",
    "benchmarks.md": "benchmarks/README.md",
    "changelog.md": "CHANGELOG.md",
}

LISTED = runpy.run_path(str(Path(__file__).with_name("settings_pages.py")))


def build(place: Path) -> None:
    """Build the site into ``site`` in a directory, from the pages that are written into its ``pages``.

    Raises:
        subprocess.CalledProcessError: Zensical ended; it says why on stdout.
    """
    pages, site = place / "pages", place / "site"
    for each in (pages, site):
        shutil.rmtree(each, ignore_errors=True)
    shutil.copytree(ROOT / DOCS, pages)
    titles = {}
    for path, source in {**{each.name: f"{DOCS}/{each.name}" for each in (ROOT / DOCS).glob("*.md")}, **PIECES}.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        text = for_site(LISTED["with_listing"](text, "commands") if path == "reference.md" else text, path)
        (pages / path).write_text(text, encoding="utf-8")
        titles[path] = text.partition("\n")[0].removeprefix("# ")
    shutil.copy(ROOT / "mkdocs.yml", place)
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=place, check=True)
    for path in titles:
        shutil.copy(pages / path, site)
        page = (site / path).with_suffix(".html")
        page.write_text(EQUATION.sub(_mathml, page.read_text(encoding="utf-8")), encoding="utf-8")
    lines = "".join(f"- [{title}]({path})\n" for path, title in titles.items())
    head = "# Murho\n\n> A prediction service that answers with error bars\n\n## Pages\n\n"
    (site / "llms.txt").write_text(head + lines, encoding="utf-8")


def for_site(markdown: str, page: str) -> str:
    """Return the Markdown of a page with the links that it has in the site; code stays as it is."""
    source = PIECES.get(page, f"{DOCS}/{page}")
    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(lambda link: _link(link, source), part) for part in parts[::2]]
    parts[1::2] = [DIAGRAMS["BLOCK"].sub(_picture, part) for part in parts[1::2]]
    return "".join(parts)


def _mathml(equation: re.Match[str]) -> str:
    """Return the MathML of an equation, which `pymdownx.arithmatex` has marked in a page."""
    latex = html.unescape(equation["latex"])
    if equation["tag"] == "span":
        return convert(latex)
    return f'<div class="equation">{convert(latex, display="block")}</div>'


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


if __name__ == "__main__":
    place = Path(*sys.argv[1:]) if len(sys.argv) > 1 else ROOT / "build"
    place.mkdir(exist_ok=True)
    build(place)

"""Draws the diagrams of the documentation, which are written as Mermaid, for the site: one SVG file each.

    .venv/bin/python scripts/diagrams.py

GitHub draws a ``mermaid`` block by itself; the site shows the file that this script has made of it, so that a reader
needs neither a network nor a script. Each file is named by a digest of its block (`diagram_file`): a block that was
changed has no file, and the build of the site says to run this. It needs npm, once a network, and a Chromium.
"""

from __future__ import annotations

import hashlib
import re
import runpy
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DRAWN = Path("docs") / "assets" / "diagrams"
MERMAID = "mermaid@12.3.0"
BLOCK = re.compile(r"^```mermaid\n(?P<source>.*?)^```$", re.MULTILINE | re.DOTALL)
# Both fonts have the same widths: a label fits its box wherever one of them is.
FONT = "DejaVu Sans, Verdana, sans-serif"
DRAW = """async ([source, font]) => {
  const {mermaid} = globalThis;
  mermaid.initialize({
    startOnLoad: false, theme: 'neutral', fontFamily: font, htmlLabels: false, deterministicIds: true,
    flowchart: {htmlLabels: false, curve: 'basis', wrappingWidth: 260}, themeVariables: {fontSize: '14px'},
  });
  return (await mermaid.render('diagram', source)).svg;
}"""
SIZE = re.compile(r' width="100%"(?P<rest>[^>]*?) viewBox="\S+ \S+ (?P<width>[\d.]+) (?P<height>[\d.]+)"')


def diagram_file(source: str) -> str:
    """Path of the file of a block, below the folder docs/."""
    return f"assets/diagrams/{hashlib.sha256(source.strip().encode()).hexdigest()[:12]}.svg"


def diagram_title(source: str) -> str:
    """Return what a diagram shows: its ``accTitle``."""
    found = re.search(r"^\s*accTitle:\s*(.+)$", source, re.MULTILINE)
    return found[1].strip() if found else "Diagram"


def sources() -> list[str]:
    """Return the Mermaid blocks of all documents that the site shows."""
    pieces = runpy.run_path(str(Path(__file__).with_name("site_pages.py")))["PIECES"]
    documents = sorted({*(ROOT / "docs").glob("*.md"), *(ROOT / source for source in pieces.values())})
    return [block["source"] for path in documents for block in BLOCK.finditer(path.read_text(encoding="utf-8"))]


def draw(blocks: list[str]) -> list[str]:
    """Return the blocks as SVG documents."""
    from playwright.sync_api import sync_playwright

    browser = runpy.run_path(str(Path(__file__).with_name("browser.py")))["find_browser"]()
    with tempfile.TemporaryDirectory() as place, sync_playwright() as running:
        subprocess.run(["npm", "pack", "--silent", MERMAID], cwd=place, check=True, stdout=subprocess.DEVNULL)  # noqa: S603, S607 - npm
        (package,) = Path(place).glob("*.tgz")
        with tarfile.open(package) as files:
            files.extract("package/dist/mermaid.min.js", place, filter="data")
        chromium = running.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page()
        page.add_script_tag(path=Path(place) / "package" / "dist" / "mermaid.min.js")
        drawn = [_sized(page.evaluate(DRAW, [block, FONT])) for block in blocks]
        chromium.close()
    return drawn


def _sized(picture: str) -> str:
    """Return a picture with its size, which it needs as a file of its own."""
    found = SIZE.search(picture)
    if found is None:
        raise ValueError(f"{MERMAID} draws no viewBox: mend SIZE in scripts/diagrams.py")
    width, height = (round(float(found[side])) for side in ("width", "height"))
    return picture.replace(' width="100%"', f' width="{width}" height="{height}"', 1)


def main() -> int:
    """Draw all diagrams again, and remove the files of those that are gone."""
    blocks = sources()
    (ROOT / DRAWN).mkdir(parents=True, exist_ok=True)
    for old in (ROOT / DRAWN).glob("*.svg"):
        old.unlink()
    for block, picture in zip(blocks, draw(blocks), strict=True):
        path = ROOT / "docs" / diagram_file(block)
        path.write_text(picture + "\n", encoding="utf-8")
        sys.stdout.write(f"drew {path.relative_to(ROOT)}: {diagram_title(block)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

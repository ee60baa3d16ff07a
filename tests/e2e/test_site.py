"""The site of the documentation: it builds without a warning, and asks no other host for anything."""

from __future__ import annotations

import html.parser
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT


@pytest.fixture(scope="module")
def hook() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "site_pages.py"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the site as ``make docs`` builds it: strict, so a link or heading that is not there ends it."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(ROOT / "scripts" / "site_pages.py"), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory / "site"


class Loaded(html.parser.HTMLParser):
    """What a browser loads for a page by itself: everything that is named but links to follow."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            return
        self.addresses += [value for name, value in attributes if name in ("src", "href", "srcset", "data") and value]


def test_agents_find_every_page_as_markdown(site: Path) -> None:
    listed = re.findall(r"^- \[.+\]\((.+)\)$", (site / "llms.txt").read_text(), re.MULTILINE)
    assert {Path(each).stem for each in listed} == {path.stem for path in site.glob("*.html")} - {"404"}
    assert all((site / each).read_text().startswith("# ") for each in listed)


def test_every_document_is_a_page_and_the_navigation_names_25(site: Path) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"index", "benchmarks", "changelog", "data"}
    assert pages <= {path.stem for path in site.glob("*.html")}
    named = set(re.findall(r'<a href="(?:\./)?(\w+)\.html" class="md-nav__link', (site / "index.html").read_text()))
    assert pages - named <= {"architecture", "changelog", "data"}
    assert len(named) <= 25


def test_a_page_loads_nothing_from_another_host(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert [address for address in Loaded(text).addresses if re.match(r"(\w+:)?//", address)] == [], path
        # The theme would load Mermaid from unpkg.com for such an element.
        assert 'class="mermaid"' not in text, path
    for path in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"';]*", path.read_text()) == [], path


def test_no_equation_is_left_as_latex(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert 'class="arithmatex"' not in path.read_text(), path


def test_an_equation_becomes_mathml(hook: dict[str, Any]) -> None:
    page = '<p><span class="arithmatex">\\(a &lt; b\\)</span></p><div class="arithmatex">\\[\nc\n\\]</div>'
    made = hook["EQUATION"].sub(hook["_mathml"], page)
    inline, block = re.findall(r"<math [^>]*>.*?</math>", made)
    assert 'display="inline"' in inline
    assert re.findall(r"<m[io]>([^<]*)</m[io]>", inline) == ["a", "&#x0003C;", "b"]
    assert 'display="block"' in block
    assert made.startswith("<p><math")
    assert made.endswith("</math></div>")


@pytest.mark.parametrize(
    ("page", "written", "wanted"),
    [
        ("api.md", "[a](../README.md#your-own-table)", "[a](index.md#your-own-table)"),
        ("index.md", "[a](docs/api.md)", "[a](api.md)"),
        ("benchmarks.md", "[a](../docs/ray.md)", "[a](ray.md)"),
        ("index.md", "[MIT](LICENSE)", "MIT (`LICENSE`)"),
        ("api.md", "[a](gone.md)", "[a](gone.md)"),
        ("api.md", "```\n[a](../LICENSE)\n```\n", "```\n[a](../LICENSE)\n```\n"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(
    hook: dict[str, Any], page: str, written: str, wanted: str
) -> None:
    for_site: Callable[[str, str], str] = hook["for_site"]
    assert for_site(written, page) == wanted


def test_diagrams_are_pictures_and_each_picture_is_shown(site: Path) -> None:
    pages = "".join(page.read_text() for page in site.glob("*.html"))
    assert "accTitle" not in pages
    drawn = sorted(path.name for path in (ROOT / "docs" / "assets" / "diagrams").glob("*.svg"))
    assert drawn
    assert sorted(set(re.findall(r'src="assets/diagrams/([^"]+)"', pages))) == drawn


def test_a_diagram_that_was_changed_is_not_shown_as_it_was(hook: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"'A new one' has changed: .*diagrams\.py draws it"):
        hook["for_site"]("```mermaid\nflowchart LR\n  accTitle: A new one\n  a --> b\n```\n", "architecture.md")

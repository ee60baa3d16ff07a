"""What README and docs tell people to type is typed here, and answers as they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from murho.model.training.options import make_options, read_config
from tests.e2e.support import MURHO, murho, serve
from tests.support import ROOT, made_once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.support import Service

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HEADER = "-H 'content-type: application/json'"


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def block_after(path: Path, mark: str) -> str:
    """The fenced block behind ``<!-- mark -->``."""
    found = re.search(
        rf"<!-- {mark} -->\n```\w+\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    assert found, mark
    return found.group(1)


def shell(text: str, directory: Path) -> str:
    """Runs a block as a person would paste it."""
    environment = {**os.environ, "PATH": f"{MURHO.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the README's section "Your own table" has been typed, but for the last line."""

    def type_it(directory: Path) -> None:
        shutil.copytree(ROOT / "examples", directory / "examples")
        (block,) = (block for block in blocks(ROOT / "README.md", "sh") if "murho train" in block)
        lines = block.splitlines()
        assert lines[-1] == "murho serve"
        shell("\n".join(lines[:-1]), directory)

    return made_once(tmp_path_factory, "workplace", type_it)


@pytest.fixture(scope="module")
def service(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serve(workplace / "checkpoints", tmp_path_factory.mktemp("log") / "log") as service:
        service.wait_for_line("(Ready: )")
        yield service


def test_the_readmes_commands_score_the_file(workplace: Path) -> None:
    lines = (workplace / "scored.csv").read_text().splitlines()
    assert len(lines) == 407
    assert lines[0].startswith("Miles_per_Gallon,")
    assert lines[0].endswith("mean,std,epistemic_std,aleatoric_std,p5,p50,p95")


def test_the_readmes_request_gets_the_readmes_answer(service: Service, workplace: Path) -> None:
    request = block_after(ROOT / "README.md", "request").replace("http://127.0.0.1:8000", service.address)
    answer, printed = (
        json.loads(shell(request, workplace)),
        json.loads(block_after(ROOT / "README.md", "answer")),
    )
    assert list(answer) == list(printed)
    for key in ("model", "target", "samples", "seed", "calibrated", "warnings"):
        assert answer[key] == printed[key]
    # Another processor rounds otherwise, and on a busy one the time limit ends the search with other choices.
    assert answer["mean"] == pytest.approx(printed["mean"], abs=3.0)
    assert 0.5 < answer["std"][0] / printed["std"][0] < 2.0
    assert answer["percentiles"]["values"][0] == pytest.approx(printed["percentiles"]["values"][0], abs=5.0)


def test_the_readmes_mistake_is_answered_as_it_says(service: Service) -> None:
    printed = json.loads(block_after(ROOT / "README.md", "mistake"))
    request = block_after(ROOT / "README.md", "request").replace('"Cylinders": 4', '"Cylinders": "four"')
    body = request[request.index("{") : request.rindex("}") + 1]
    response = service.client.post("/predict", content=body, headers={"content-type": "application/json"})
    answer: dict[str, Any] = response.json()
    assert response.status_code == 422
    assert answer["type"] == printed["type"]
    assert answer["title"] == printed["title"]
    assert answer["errors"] == printed["errors"]


def test_every_curl_of_the_api_page_works(service: Service, workplace: Path) -> None:
    typed = blocks(ROOT / "docs" / "api.md", "sh")
    assert sum(block.count("curl") for block in typed) >= 8
    for block in typed:
        text = block.replace("curl -s ", "curl -fsS ").replace("http://127.0.0.1:8000", service.address)
        shell(text, workplace)


def test_the_readmes_configuration_is_valid(tmp_path: Path) -> None:
    (text,) = blocks(ROOT / "README.md", "toml")
    (tmp_path / "config.toml").write_text(text)
    values = read_config(tmp_path / "config.toml")
    assert values.pop("target") == "Miles_per_Gallon"
    assert make_options(values).columns["Cylinders"].kind == "categorical"


def test_every_option_in_the_readmes_table_exists() -> None:
    table = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `--")]
    named = {option for line in table for option in re.findall(r"`(--[a-z0-9-]+)`", line)}
    known = set(re.findall(r"--[a-z0-9-]+", murho("train", "--help").stdout))
    assert len(named) > 20
    assert named <= known
    assert known - named <= {"--target", "--json", "--help"}


def test_every_make_target_and_compose_service_that_docs_name_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    services = set(
        re.findall(r"^  ([a-z-]+):$", (ROOT / "docker-compose.yml").read_text(), flags=re.MULTILINE)
    )
    for path in DOCUMENTS:
        for block in blocks(path, "sh"):
            for words in re.findall(r"\bmake ([a-zA-Z0-9_=:/. ]+)", block):
                assert {word for word in words.split() if "=" not in word} <= targets, (path, words)
            for name in re.findall(r"docker compose up ([a-z-]+)", block):
                assert name in services, (path, name)


def test_every_link_between_documents_leads_somewhere() -> None:
    for path in [*DOCUMENTS, ROOT / "benchmarks" / "README.md", ROOT / "examples" / "README.md"]:
        for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert link.startswith("http") or (path.parent / link).exists(), (path, link)


def test_every_benchmark_that_documents_name_exists() -> None:
    for path in [*DOCUMENTS, ROOT / "benchmarks" / "README.md"]:
        for name in re.findall(r"python -m benchmarks\.(\w+)", path.read_text()):
            assert (ROOT / "benchmarks" / f"{name}.py").is_file(), (path, name)


def test_the_page_on_evaluation_judges_as_it_says(tmp_path: Path) -> None:
    """Its commands, with a quick fit; then every line of the answer begins as it does on the page."""
    page = ROOT / "docs" / "evaluation.md"
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (typed,) = blocks(page, "sh")
    quick = "--noise homoscedastic --epochs 20 --hidden 16"
    answer = shell(typed.replace("--target Miles_per_Gallon", f"--target Miles_per_Gallon {quick}"), tmp_path)
    answer = answer[answer.index("most version") :]  # behind what training says

    def titles(text: str) -> list[str]:
        words = [line.split("  ")[0] for line in text.splitlines()]
        return [
            word for word in words if word[:1].isalpha() and not word.startswith(("RMSE", "predicted std"))
        ]

    assert sorted(titles(answer)) == sorted(titles(block_after(page, "answer")))

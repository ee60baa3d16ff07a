"""What README and docs tell people to type is typed here, and answers as they say; what they name exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from murho.cli.train import read_config
from murho.command_line import COMMANDS
from murho.model.training.options import make_options
from murho.service.settings import OF_OTHERS, Settings
from tests.e2e.support import MURHO, Service, serve
from tests.support import ROOT, call_murho, made_once

README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*DOCUMENTS, *(ROOT / name / "README.md" for name in ("benchmarks", "client", "examples"))]
MADE = ("benchmarks/results",)
"""What commands make, and a clone has not."""


def blocks(path: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def block_after(path: Path, mark: str) -> str:
    """Return the fenced block behind ``<!-- mark -->``."""
    found = re.search(rf"<!-- {mark} -->\n```\w+\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert found, mark
    return found.group(1)


def shell(text: str, directory: Path) -> str:
    """Run a block as a person would paste it."""
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
    """Return a directory in which all but the last line of the README's "Your own table" has been typed, quickly."""

    def type_it(directory: Path) -> None:
        for line in _typed_in_readme(directory):
            if line.startswith("murho "):  # a process of its own would import PyTorch for seconds
                call_murho(*shlex.split(line.replace("murho train", "murho train --report --quick"))[1:], cwd=directory)
            else:
                shell(line, directory)

    return made_once(tmp_path_factory, "workplace", type_it)


def _typed_in_readme(directory: Path) -> list[str]:
    """Return the commands of the section but for the last line, and what they need in the directory."""
    shutil.copytree(ROOT / "examples", directory / "examples")
    (block,) = (block for block in blocks(README, "sh") if "murho train" in block)
    *lines, last = block.splitlines()
    assert last == "murho serve"
    return lines


@pytest.fixture(scope="module")
def service(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serve(workplace / "checkpoints", tmp_path_factory.mktemp("log") / "log") as service:
        yield service


def test_the_readmes_commands_score_the_file(workplace: Path) -> None:
    lines = (workplace / "scored.csv").read_text().splitlines()
    assert len(lines) == 1 + 81
    assert lines[0].startswith("Miles_per_Gallon,")
    assert lines[0].endswith("mean,std,epistemic_std,aleatoric_std,p5,p50,p95")


@pytest.mark.slow
def test_the_readmes_commands_in_full(tmp_path: Path) -> None:
    shell("\n".join(_typed_in_readme(tmp_path)), tmp_path)
    assert len((tmp_path / "scored.csv").read_text().splitlines()) == 1 + 81
    assert (tmp_path / "checkpoints" / "cars" / "1" / "report.html").is_file()


def test_the_readmes_request_gets_the_readmes_answer(service: Service, workplace: Path) -> None:
    request = block_after(README, "request").replace("http://127.0.0.1:8000", service.address)
    answer, printed = (
        json.loads(shell(request, workplace)),
        json.loads(block_after(README, "answer")),
    )
    assert list(answer) == list(printed)
    for key in ("model", "target", "samples", "seed", "calibrated", "extrapolation", "warnings"):
        assert answer[key] == printed[key]
    # Another processor rounds otherwise, and on a busy one the time limit ends the search with other choices.
    assert answer["mean"] == pytest.approx(printed["mean"], abs=3.0)
    assert 0.5 < answer["std"][0] / printed["std"][0] < 2.0
    assert answer["percentiles"]["values"][0] == pytest.approx(printed["percentiles"]["values"][0], abs=5.0)


def test_a_mistake_is_answered_as_the_api_page_says(service: Service) -> None:
    printed = json.loads(block_after(ROOT / "docs" / "api.md", "mistake"))
    request = block_after(README, "request").replace('"Cylinders": 4', '"Cylinders": "four"')
    body = request[request.index("{") : request.rindex("}") + 1]
    response = service.client.post("/predict", content=body, headers={"content-type": "application/json"})
    answer: dict[str, Any] = response.json()
    assert response.status_code == 422
    assert answer["type"] == printed["type"]
    assert answer["title"] == printed["title"]
    assert answer["errors"] == printed["errors"]


def test_the_page_on_totals_shows_what_its_command_prints(workplace: Path) -> None:
    page = ROOT / "docs" / "totals.md"
    command, printed = block_after(page, "total"), block_after(page, "totals").splitlines()
    told = call_murho(*shlex.split(command)[1:], cwd=workplace).stdout.splitlines()
    assert told[0] == printed[0]
    for line, other in zip(told[1:], printed[1:], strict=True):
        assert line.split(",")[:2] == other.split(",")[:2]
        assert float(line.split(",")[2]) == pytest.approx(float(other.split(",")[2]), abs=3.0)


def test_every_curl_of_the_api_page_works(service: Service, workplace: Path) -> None:
    typed = blocks(ROOT / "docs" / "api.md", "sh")
    assert sum(block.count("curl") for block in typed) >= 8
    for block in typed:
        text = block.replace("curl -s ", "curl -fsS ").replace("http://127.0.0.1:8000", service.address)
        shell(text, workplace)


def test_the_page_on_the_inference_protocol_works_as_typed(service: Service, workplace: Path) -> None:
    page = ROOT / "docs" / "inference_protocol.md"
    typed = [block for block in blocks(page, "sh") if "curl" in block]
    assert sum(block.count("curl") for block in typed) >= 8
    for block in typed:
        text = block.replace("curl -s ", "curl -fsS ").replace("http://127.0.0.1:8000", service.address)
        assert shell(text, workplace)
    (code,) = blocks(page, "python")
    said: dict[str, Any] = {}
    exec(code.replace("127.0.0.1:8000", service.address.removeprefix("http://")), said)  # noqa: S102 - our own page
    assert said["answer"].as_numpy("percentiles").shape == (2, 2)
    served = set(service.client.get("/openapi.json").json()["paths"])
    named = set(re.findall(r"`(?:POST |GET )(/[a-z0-9/{}]+)`", page.read_text()))
    assert len(named) >= 10
    assert named <= served


@pytest.mark.slow
def test_the_page_on_ray_works_as_typed(workplace: Path, tmp_path: Path) -> None:
    page = ROOT / "docs" / "ray.md"
    place = tmp_path / "work"
    shutil.copytree(workplace, place)
    shell(block_after(page, "predict"), place)
    assert (place / "scored.parquet").is_file()
    (place / "answer.py").write_text(block_after(page, "dataset"))
    shell(f"{MURHO.parent}/python answer.py", place)
    assert list((place / "answers").glob("*.parquet"))
    settings = (ROOT / "deploy" / "ray" / "serve.yaml").read_text().replace("port: 8000", "port: 18473")
    (place / "deploy" / "ray").mkdir(parents=True)
    (place / "deploy" / "ray" / "serve.yaml").write_text(settings.replace("num_cpus: 1", "num_cpus: 0.1"))
    words = block_after(page, "serve").split()
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    with (place / "log").open("wb") as log:
        running = subprocess.Popen(
            [MURHO.parent / words[0], *words[1:]], cwd=place, env=environment, stdout=log, stderr=log
        )
    try:
        with httpx.Client(base_url="http://127.0.0.1:18473", timeout=30) as client:
            for _ in range(600):
                with suppress(httpx.HTTPError):
                    if client.get("/readyz").is_success:
                        break
                assert running.poll() is None, (place / "log").read_text()
                time.sleep(0.5)
            answer = client.get("/models/cars")
            assert answer.json()["version"] == "1"
    finally:
        running.send_signal(signal.SIGINT)
        try:
            running.wait(60)
        except subprocess.TimeoutExpired:  # a background job of a shell ignores it
            running.terminate()
            running.wait(60)


def test_the_api_page_prints_the_monte_carlo_errors_of_its_request(service: Service, workplace: Path) -> None:
    page = ROOT / "docs" / "api.md"
    (request,) = (block for block in blocks(page, "sh") if "mc_error" in block)
    printed = json.loads(block_after(page, "mc_error"))["mc_error"]
    said = json.loads(shell(request.replace("http://127.0.0.1:8000", service.address), workplace))["mc_error"]
    assert list(said) == list(printed)
    assert [len(row) for row in said["percentiles"]] == [len(row) for row in printed["percentiles"]]
    for key in ("mean", "std"):  # of another fit where the processor is another one
        assert 0.1 < said[key][0] / printed[key][0] < 10.0


def test_the_configuration_on_the_page_of_options_is_valid(tmp_path: Path) -> None:
    (text,) = blocks(ROOT / "docs" / "reference.md", "toml")
    (tmp_path / "config.toml").write_text(text)
    values = read_config(tmp_path / "config.toml")
    assert values.pop("target") == "Miles_per_Gallon"
    assert make_options(values).columns["Cylinders"].kind == "categorical"


@cache
def options_of(command: str) -> frozenset[str]:
    """Return the options in the help of a command."""
    return frozenset(re.findall(r"--[a-z0-9-]+", call_murho(command, "--help").stdout))


def test_every_command_line_that_documents_show_has_a_command_and_options_that_exist() -> None:
    found = 0
    for path in PAGES:
        text = re.sub(r"murho:cpu\s+", "murho ", path.read_text().replace("\\\n", " "))
        for command, words in re.findall(rf"\bmurho ({'|'.join(COMMANDS)})\b([^`\n]*)", text):
            named = set(re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", words))
            assert named <= options_of(command), (path, command, words)
            found += bool(named)
    assert found > 10


def test_every_path_that_documents_name_exists() -> None:
    """Paths from the top of the repository, in code, diagrams and tables alike."""
    places = "client|model|service|tests|benchmarks|docs|examples|scripts|src"
    for path in PAGES:
        named = set(re.findall(rf"(?<![\w/.~-])((?:{places})/[\w./-]*)", path.read_text()))
        named |= {f"benchmarks/{name}.py" for name in re.findall(r"python -m benchmarks\.(\w+)", path.read_text())}
        missing = {name for name in named if not (ROOT / name.rstrip(".")).exists()}
        # LIBRARY.py stands for a file that a reader makes.
        assert {name for name in missing if not name.startswith(MADE) and not re.search("[A-Z]{4}", name)} == set(), (
            path
        )


def test_the_page_on_architecture_lists_the_packages_in_their_order() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contract = next(each for each in contracts if each.get("exhaustive"))
    section = ARCHITECTURE.read_text().partition("| `model/` |")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)/` \|", section, flags=re.MULTILINE)
    packages = {path.name for path in (ROOT / "model").iterdir() if (path / "__init__.py").exists()}
    assert listed == [name for name in reversed(contract["layers"]) if name in packages]
    assert set(listed) == packages


def test_what_documents_name_in_the_environment_is_read() -> None:
    known = {f"MURHO_{name.upper()}" for name in Settings.model_fields}
    known |= OF_OTHERS
    known |= set(re.findall(r"MURHO_[A-Z_]+", (ROOT / "docker-compose.yml").read_text()))
    for path in PAGES:
        assert set(re.findall(r"MURHO_[A-Z_]*[A-Z]", path.read_text())) <= known, path
    page = (ROOT / "docs" / "install.md").read_text()
    table = page.partition("given as `make serve PORT=9000`")[2].partition("\n\nWithout make")[0]
    named = {
        name
        for cell in re.findall(r"^\| (`[^|]+) \|", table, flags=re.MULTILINE)
        for name in re.findall("[A-Z_]+", cell)
    }
    assert named >= {"HOST", "PORT", "ARGS"}
    assert named <= set(re.findall("[A-Z_]+", (ROOT / "Makefile").read_text()))


def test_every_extra_that_documents_name_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for path in PAGES:
        for named in re.findall(r"(?:murho|'\.)\[([a-z,]+)\]", path.read_text()):
            assert set(named.split(",")) <= set(extras), (path, named)
    table = (ROOT / "docs" / "install.md").read_text().partition("| extra |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == set(extras)


def test_every_path_of_the_api_page_is_served(service: Service) -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    named = set(re.findall(r"`(?:POST |GET )?(/[a-z/{}]+)`", text))
    served = set(service.client.get("/openapi.json").json()["paths"])
    assert len(named) >= 8
    assert named <= served


def test_every_make_target_and_compose_service_that_docs_name_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    services = set(re.findall(r"^  ([a-z-]+):$", (ROOT / "docker-compose.yml").read_text(), flags=re.MULTILINE))
    for path in DOCUMENTS:
        for block in [*blocks(path, "sh"), *re.findall(r"`(make [^`\n]+)`", path.read_text())]:
            for words in re.findall(r"\bmake ([a-zA-Z0-9_=:/. ]+)", block.partition(' ARGS="')[0]):
                assert {word for word in words.split() if "=" not in word} <= targets, (path, words)
            for name in re.findall(r"docker compose up ([a-z-]+)", block):
                assert name in services, (path, name)


def test_prose_keeps_to_120_characters_and_the_readme_to_900_words() -> None:
    for path in PAGES:
        text = path.read_text()
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        long = [line for line in prose.splitlines() if len(line) > 120 and not line.startswith(("![", "|"))]
        assert long == [], path
    assert len(README.read_text().split()) <= 900


def test_the_markdown_of_the_repository_has_at_most_36000_words() -> None:
    git = shutil.which("git") or ""
    listing = [git, "-C", str(ROOT), "ls-files", "*.md"]
    listed = subprocess.run(listing, capture_output=True, text=True, check=False).stdout.split() if git else []
    # An archive of the repository has no list of its files, and its folders may contain pages of others.
    tracked = [ROOT / name for name in listed if not name.startswith("tests/") and (ROOT / name).is_file()]
    paths = tracked or [*PAGES, *(path for path in ROOT.glob("*.md") if path != README)]
    words = {str(path.relative_to(ROOT)): len(path.read_text().split()) for path in paths}
    assert sum(words.values()) <= 36_000, words


def _prose(path: Path) -> str:
    """Return a page without code, tables, equations and lists that are made from code."""
    text = re.sub(r"<!-- (\w+) -->.*?<!-- end of \1 -->", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r"^```.*?^```|^\$\$$.*?^\$\$$|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`]*`", "CODE", re.sub(r"^(?:\s*\||    ).*$", "", text, flags=re.MULTILINE))
    return re.sub(r"\$(?!\s)(?:[^$\n]|\n(?!\n))+(?<!\s)\$", "MATH", text)


def test_prose_speaks_to_a_reader_in_whole_sentences() -> None:
    text = "\n\n".join(
        map(_prose, [*PAGES, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG"))])
    )
    thousands = len(text.split()) / 1000
    assert len(re.findall(r"\byou(?:rs?|rself)?\b", text, re.IGNORECASE)) >= 8 * thousands
    assert text.count(";") <= 2 * thousands
    assert re.findall(r"(?:^|[.:!?]\s+|- |\*\* )Of (?:[^.,;:\n]|\n(?!\n)){1,80},", text, re.MULTILINE) == []
    assert re.findall(r"\b(?:is|are|was|were) no\b(?! (?:longer|more|one))", text) == []
    assert len(re.findall(r"\b(?:that|those)\s+of\b", text)) <= 10

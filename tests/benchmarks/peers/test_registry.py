"""The registry of peers: each has a script, a pinned environment, and committed scores that are its own."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from benchmarks import peers
from benchmarks.peers import CALIBRATOR, PEERS, RESULTS

FOLDER = Path(peers.__file__).parent
SHARED = ("exchange", "network_task", "step_task", "engine_task", "table_task", "class_task", "torch_parts")
ALL = (*PEERS, CALIBRATOR)
SCRIPTS = sorted({peer.library.module for peer in ALL})


def test_every_script_is_of_a_peer_and_every_peer_has_one() -> None:
    others = {"__init__", "murho_fit", "murho_predictions", *SHARED}
    assert {path.stem for path in FOLDER.glob("*.py")} - others == set(SCRIPTS)


def test_every_environment_is_pinned_and_names_are_unique_in_a_benchmark() -> None:
    assert len({(peer.benchmark, peer.name) for peer in ALL}) == len(ALL)
    for peer in ALL:
        assert peer.library.packages
        assert all("==" in package for package in peer.library.packages)


def test_every_peer_takes_part_in_a_benchmark_that_its_script_knows() -> None:
    for peer in ALL:
        text = (FOLDER / f"{peer.library.module}.py").read_text(encoding="utf-8")
        assert re.search(rf"drive\(.*\b{peer.benchmark}={peer.benchmark}_session", text)


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("script", [*SCRIPTS, *SHARED])
def test_a_script_imports_of_this_repository_only_what_all_environments_have(script: str) -> None:
    imported = _imported(FOLDER / f"{script}.py")
    of_ours = {name for name in imported if name.partition(".")[0] in {"benchmarks", "murho", "scripts", "tests"}}
    assert of_ours <= {f"benchmarks.peers.{name}" for name in SHARED}
    if script in SCRIPTS and "benchmarks.peers.torch_parts" in of_ours:
        (library,) = {peer.library for peer in ALL if peer.library.module == script}
        assert any(package.startswith("torch==") for package in library.packages)


def test_the_exchange_needs_numpy_alone() -> None:
    code = f"""
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {{*sys.stdlib_module_names, "numpy", "benchmarks"}}:
            raise ModuleNotFoundError(f"no {{name}} in this environment")
sys.meta_path.insert(0, Nothing())
for name in {SHARED[:-1]!r}:
    __import__(f"benchmarks.peers.{{name}}")
print(sorted(name for name in sys.modules if name.startswith("benchmarks.")))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=FOLDER.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = sorted(["benchmarks.peers", *(f"benchmarks.peers.{name}" for name in SHARED[:-1])])
    assert ast.literal_eval(done.stdout) == expected


def test_committed_scores_are_of_known_peers_and_pinned_packages() -> None:
    known = {peer.name: peer for peer in PEERS if peer.benchmark in ("table", "classes")}
    for path in RESULTS.glob("*.json"):
        kept = orjson.loads(path.read_bytes())
        assert path.stem == f"{kept['peer']}-{kept['set']}"
        assert kept["requirements"] == known[kept["peer"]].requirements

"""The processes that are measured: peers in environments of their own, which take turns, and our own scripts.

A peer may need other versions of the same libraries, or dozens of other libraries. So each has a virtual environment
with pinned packages below a cache directory, and its part of a benchmark runs there.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import orjson

from benchmarks.results import ROOT, Report
from murho.model.errors import MurhoError
from scripts.install import torch_sources

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Container, Mapping, Sequence

    from benchmarks.peers import Peer

DEFAULT_CACHE = Path("~/.cache/murho-benchmarks").expanduser()
STAMP = "requirements.stamp"
"""File with the requirements; written last, so that it marks a complete environment."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
XLA_ON_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
LAST_LINES = 15
MEASURED = """
import json, time
from benchmarks.peers.exchange import peak_memory
from murho.command_line import main
try:
    main()
finally:
    print("\\n" + json.dumps({"peak": peak_memory(), "processor": time.process_time()}))
"""


class ProcessError(MurhoError):
    """A process failed, or an environment can't be made; the message ends with the last lines that were said."""


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Add ``--cache``, the directory of the peers' environments."""
    said = f"for the peers' environments (default {DEFAULT_CACHE})"
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, metavar="DIR", help=said)


def environment(name: str, requirements: Sequence[str], cache: Path) -> Path:
    """Return the Python of a virtual environment with the given packages; make the environment if it is missing.

    Nothing is installed if the stamp of an earlier call lists the same requirements for the same Python. Otherwise the
    directory is removed and made again. Two processes must not make the same environment at the same time.

    Args:
        name: Name of the environment, a directory below ``cache``.
        requirements: Pinned packages, as ``package==version``. ``torch`` is installed first, on Linux in its CPU build
            if there is one: the package index's own has gigabytes for CUDA.
        cache: Directory of the environments.

    Raises:
        ProcessError: The environment can't be made, for example without a network.
    """
    directory = cache.expanduser() / name
    python, stamp = directory / "bin" / "python", directory / STAMP
    wanted = "\n".join([f"python {platform.python_version()}", *sorted(requirements)]) + "\n"
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(f"environment {name}: installing {', '.join(requirements)}", file=sys.stderr, flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    _run(name, [sys.executable, "-m", "venv", str(directory)])
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    for torch in (each.partition("==")[2] for each in requirements if each.startswith("torch==")):
        sources = torch_sources(torch, "cpu", platform.system(), os.environ.get("TORCH_INDEX_URL"))
        for source in sources:
            with contextlib.suppress(ProcessError):
                _run(name, [*pip, *source.options, source.requirement])
                break
    _run(name, [*pip, *requirements])
    stamp.write_text(wanted, encoding="utf-8")
    return python


def _run(name: str, words: Sequence[str]) -> None:
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)  # noqa: S603 - pip and venv
    if done.returncode:
        lines = "\n".join((done.stdout + done.stderr).strip().splitlines()[-LAST_LINES:])
        raise ProcessError(f"environment {name} can't be made; it needs the network once; its last lines:\n{lines}")


def murho_command(*words: str) -> Report:
    """Run `murho` with its arguments in a process; ``peak`` memory, bytes, and ``processor`` seconds, with imports.

    Raises:
        ProcessError: It failed.
    """
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", MEASURED, *words], cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode:
        raise ProcessError(_ended("murho", done.returncode, done.stderr))
    found: Report = orjson.loads(done.stdout.splitlines()[-1])
    return found


def train(table: Path, target: str, root: Path, name: str, *options: str) -> None:
    """Run ``murho train`` into a directory of checkpoints."""
    print(f"training {name} …", file=sys.stderr, flush=True)
    where = ("--target", target, "--name", name, "--checkpoints", str(root))
    murho_command("train", str(table), *where, *options)


class SystemProcess:
    """A peer, or Murho described as one, in a process of its own; a context manager that ends the process.

    Attributes:
        ready: The first answer of the process, when it was ready.
    """

    def __init__(self, peer: Peer, task: object, *, cache: Path, threads: int = 1) -> None:
        """Start the process, and wait until it is ready.

        Args:
            peer: The peer; without packages it runs in this environment.
            task: What its script gets first.
            cache: Directory of the environments.
            threads: Number of threads; XLA takes all cores unless this is 1.

        Raises:
            ProcessError: Its environment can't be made, or the process ended.
        """
        python = environment(peer.script, peer.packages, cache) if peer.packages else Path(sys.executable)
        self._name, self._errors = peer.name, tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        variables = os.environ | dict.fromkeys(THREADS, str(threads)) | {"JAX_PLATFORMS": "cpu"}
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [str(python), "-m", f"benchmarks.peers.{peer.script}", peer.benchmark, peer.name],
            cwd=ROOT,
            env=variables | ({"XLA_FLAGS": XLA_ON_ONE_THREAD} if threads == 1 else {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        try:
            self.ready = self.ask(task)
        except BaseException:
            self.close()
            raise

    def ask(self, request: object) -> Any:
        """Send a request, and return the answer.

        Raises:
            ProcessError: The process ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("both are pipes")
        try:
            pickle.dump(request, stdin)
            stdin.flush()
            return pickle.load(stdout)  # noqa: S301 - our own script
        except (BrokenPipeError, EOFError):
            status = self._process.wait()
            self._errors.seek(0)
            raise ProcessError(_ended(self._name, status, self._errors.read())) from None

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=10.0)
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Turns:
    """Systems of which one works at a time, so that other load affects all alike; a context manager that ends them.

    A system that failed once gets no further requests.

    Attributes:
        ready: System → its first answer, for all that became ready.
        failed: System → reason of its failure.
    """

    def __init__(self, start: Mapping[str, Callable[[], SystemProcess]]) -> None:
        """Take the systems: name → function that starts its process; entering the context starts them."""
        self._start, self._stack = start, ExitStack()
        self._processes: dict[str, SystemProcess] = {}
        self.ready: dict[str, Any] = {}
        self.failed: dict[str, str] = {}

    def __enter__(self) -> Self:
        with self._stack:
            # One at a time, so that they do not slow each other down.
            for name, start in self._start.items():
                try:
                    self._processes[name] = self._stack.enter_context(start())
                    self.ready[name] = self._processes[name].ready
                except ProcessError as error:
                    self.failed[name] = str(error)
                    print(f"{name} is left out: {error}", file=sys.stderr, flush=True)
            self._stack = self._stack.pop_all()  # all are started: they end with this context
        return self

    def ask(self, request: object, *, rounds: int, without: Container[str] = ()) -> dict[str, list[Any]]:
        """Send the request to each system in turn, and wait for its answer, in every round.

        Args:
            request: The request.
            rounds: Number of rounds.
            without: Systems to leave out.

        Returns:
            System → its answers, one per round; without systems that failed in this or an earlier call.
        """
        answers: dict[str, list[Any]] = {}
        for _ in range(rounds):
            for name, process in self._processes.items():
                if name in self.failed or name in without:
                    continue
                try:
                    answers.setdefault(name, []).append(process.ask(request))
                except ProcessError as error:
                    self.failed[name] = str(error)
        return {name: replies for name, replies in answers.items() if name not in self.failed}

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _ended(name: str, status: int, errors: bytes) -> str:
    last = errors.decode("utf-8", errors="replace").strip().splitlines()[-LAST_LINES:]
    return f"{name} ended with status {status}; its last lines on stderr:\n" + "\n".join(last)

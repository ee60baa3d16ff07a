"""The servers that are measured, each in a process group of its own, so that others can be held; and their load."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from benchmarks.processes import ProcessError, environment
from benchmarks.results import ROOT, Report
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CORE = ("numpy==2.4.6", "torch==2.13.0", "numba==0.68.1", "safetensors==0.8.0", "orjson==3.13.0", "pyarrow==26.0.1")
"""What `murho.model` needs to answer with its compiled engine; Murho itself is imported from this working tree."""
PEERS = {"litserve": (*CORE, "litserve==0.2.19"), "mlserver": (*CORE, "mlserver==1.7.1")}
"""Name on the command line → packages of its environment."""
PATIENCE = 150
"""Seconds after which a request without an answer is counted as lost."""
SCRIPT = """
local bodies, at = {}, 0
function init(arguments)
  math.randomseed(os.time())
  local file = io.open(arguments[1], "rb")
  for size in string.gmatch(arguments[2], "%d+") do
    bodies[#bodies + 1] = wrk.format("POST", nil, nil, file:read(tonumber(size)))
  end
end
function request()
  at = at % #bodies + 1
  return bodies[at]
end
function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    '\\n{"requests":%d,"seconds":%f,"not_200":%d,"lost":%d,"refused_connections":%d,"p50":%f,"p90":%f,"p99":%f,"max":%f}\\n',
    summary.requests, summary.duration / 1e6, errors.status, errors.read + errors.write + errors.timeout,
    errors.connect,
    latency:percentile(50) / 1e6, latency:percentile(90) / 1e6, latency:percentile(99) / 1e6, latency.max / 1e6))
end
"""
DELAY = "function delay() return math.floor(-math.log(1 - math.random()) * {mean:f} + 0.5) end\n"
LIMIT = 240.0
"""Most seconds until a server is ready."""
REFUSED = (400, 404, 415, 422)
"""What the request is wrong for will not pass."""


def load(
    port: int, path: str, bodies: Sequence[bytes], *, connections: int, seconds: float, rate: float | None = None
) -> Report:
    """Load a server on this machine by wrk (https://github.com/wg/wrk).

    wrk sends ready-made bytes on open connections, and counts answers with a status other than 200 and connections that
    failed. Without a rate every connection sends its next request as soon as it has an answer. With a rate each of many
    connections waits a random time, so that requests come nearly as a Poisson process, whatever the answers take.

    Args:
        port: Its port.
        path: Of the POST requests.
        bodies: JSON, sent in turn.
        connections: Open connections.
        seconds: How long; whole seconds, at least 1.
        rate: Requests a second; None: as many as the server answers.

    Returns:
        ``requests`` that were answered in so many ``seconds``, of which ``not_200``; ``rate`` of answers with 200 a
        second; ``lost`` requests, ``refused_connections``; latencies ``p50, p90, p99, max`` of all answers, seconds.

    Raises:
        OptionError: wrk is not installed.
        ProcessError: wrk failed, for example because the server is gone.
    """
    wrk = shutil.which("wrk")
    if wrk is None:
        raise OptionError("wrk, which makes the load, is not installed: apt-get install wrk (Debian), brew install wrk")
    with tempfile.TemporaryDirectory() as name:
        delay = "" if rate is None else DELAY.format(mean=1e3 * connections / rate)
        script, file = Path(name) / "load.lua", Path(name) / "bodies"
        script.write_text(delay + SCRIPT)
        file.write_bytes(b"".join(bodies))
        words = [wrk, "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", f"{PATIENCE}s"]
        words += ["-s", str(script), "-Hcontent-type: application/json", f"http://127.0.0.1:{port}{path}"]
        done = subprocess.run(  # noqa: S603 - wrk, with our own arguments
            [*words, "--", str(file), ",".join(str(len(body)) for body in bodies)],
            env=os.environ | {"LC_ALL": "C"},
            capture_output=True,
            check=False,
            start_new_session=True,  # Linux shares the processors by session: load and server get the same
        )
    if done.returncode or b"\n{" not in done.stdout:
        raise ProcessError(f"wrk ended with status {done.returncode}: {(done.stderr + done.stdout).decode()}")
    found: Report = orjson.loads(done.stdout[done.stdout.rindex(b"\n{") :])
    return found | {"rate": (found["requests"] - found["not_200"]) / found["seconds"]}


class Server:
    """A started server.

    Attributes:
        path: Of its predictions.
        port: Its port.
        process: The leader of its session.
        bodies: What it is asked.
        ready: Seconds until it answered.
    """

    def __init__(self, path: str, port: int, process: subprocess.Popen[bytes], bodies: Sequence[bytes]) -> None:
        self.path, self.port, self.process, self.bodies, self.ready = path, port, process, bodies, 0.0

    def signal(self, number: signal.Signals) -> None:
        """Send all its processes a signal, the leader first: it must not replace the others."""
        for each in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Let a held server go on, and hold it again at the end."""
        self.signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.signal(signal.SIGSTOP)

    def load(self, *, connections: int, seconds: float, rate: float | None = None) -> Report:
        """`load` of this server."""
        return load(self.port, self.path, self.bodies, connections=connections, seconds=seconds, rate=rate)

    def processes(self) -> list[int]:
        """Numbers of the processes of its session, the leader first; Linux only."""
        stats = Path("/proc").glob("[0-9]*/stat")
        found = [int(path.parent.name) for path in stats if _fields(path)[3] == str(self.process.pid)]
        return sorted(found, key=lambda number: (number != self.process.pid, number))

    def workers(self) -> list[int]:
        """Numbers of the processes that the leader started; Linux only."""
        leader = str(self.process.pid)
        return [number for number in self.processes() if _fields(Path(f"/proc/{number}/stat"))[1] == leader]

    def memory(self) -> int:
        """Resident memory of its processes, bytes, where a page that n of them share counts 1/n; Linux only."""
        total = 0
        for number in self.processes():
            with contextlib.suppress(OSError):
                said = Path(f"/proc/{number}/smaps_rollup").read_text()
                total += 1024 * int(said.partition("\nPss:")[2].split()[0])
        return total

    def post(self, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to one request, on a connection of its own."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60.0)
        with contextlib.closing(connection):
            connection.request("POST", self.path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()


def _fields(stat: Path) -> list[str]:
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return ["0"] * 13


def free_port() -> int:
    """Return a port that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def murho(checkpoints: Path, model: str, workers: int = 1) -> tuple[str, list[str]]:
    """Path and command line of ``murho serve``."""
    words = [sys.executable, "-m", "murho", "serve", "--checkpoints", str(checkpoints), "--device", "cpu"]
    return f"/models/{model}/predict", [*words, "--workers", str(workers)]


def peer(name: str, version: Path, workers: int, cache: Path) -> tuple[str, list[str]]:
    """Path and command line of one of `PEERS` around a checkpoint's version."""
    python = environment(name, PEERS[name], cache)
    words = [str(python), "-m", f"benchmarks.peers.with_{name}", "--model", str(version), "--workers", str(workers)]
    return "/v2/models/cars/infer" if name == "mlserver" else "/predict", words


@contextlib.contextmanager
def running(path: str, words: Sequence[str], bodies: Sequence[bytes]) -> Iterator[Server]:
    """Start a server, wait until it answers a request with 200, and end it with the context.

    Args:
        path: Of its predictions.
        words: Its command line, without the port.
        bodies: What it will be asked; the first one must be answered.

    Raises:
        ProcessError: It ended, or did not become ready in time; with the last lines of its output.
    """
    port, began = free_port(), time.monotonic()
    # Where a peer's Python does not have Murho installed, it is imported from here. Threads that spin while they wait
    # would slow the peers and the engine alone; `murho` lets them sleep by itself. Workers that were held are not dead.
    python_path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    variables = os.environ | {"PYTHONPATH": python_path, "OMP_WAIT_POLICY": "passive"}
    variables["MURHO_ENGINE_SILENCE"] = "3600"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - our own scripts
            [*words, "--port", str(port)],
            cwd=ROOT,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        server, answered = Server(path, port, process, bodies), "nothing"
        try:
            while True:
                with contextlib.suppress(OSError, HTTPException):
                    status, content = server.post(bodies[0])
                    if status == 200:
                        break
                    answered = f"{status} {content[:500]!r}"
                    if status in REFUSED:
                        raise ProcessError(f"{words[2:4]} answered {answered}")
                if process.poll() is not None or time.monotonic() > began + LIMIT:
                    log.seek(0)
                    lines = "\n".join(log.read().decode(errors="replace").strip().splitlines()[-15:])
                    raise ProcessError(f"{words[2:4]} is not ready; it answered {answered} and said:\n{lines}")
                time.sleep(0.1)
            server.ready = time.monotonic() - began
            yield server
        finally:
            server.signal(signal.SIGKILL)
            process.wait()

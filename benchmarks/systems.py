"""The systems of a benchmark: Murho and its peers, each with the Python of its environment."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.environments import PeerEnvironmentError, environment
from benchmarks.processes import SystemProcess

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeVar

    from benchmarks.peers import Peer
    from benchmarks.peers.network_task import NetworkTask

    Task = TypeVar("Task", bound=NetworkTask)

__all__ = ["System", "peer_systems"]


@dataclass(frozen=True, slots=True)
class System:
    """A system that is measured.

    Attributes:
        peer: A peer, or Murho described as a `Peer`.
        python: Python of its environment; by default this one, Murho's.
    """

    peer: Peer
    python: Path = Path(sys.executable)

    @property
    def name(self) -> str:
        """Name of the peer."""
        return self.peer.name

    def task_of(self, task: Task) -> Task:
        """The common task, changed by this system's options."""
        return replace(task, **self.peer.options)

    def command(self, task: str) -> list[str]:
        """The command line that starts its script with a task."""
        module = f"benchmarks.peers.{self.peer.library.module}"
        return [str(self.python), "-m", module, self.peer.benchmark, task]

    def start(self, task: NetworkTask) -> SystemProcess:
        """Starts its process with the task's number of threads.

        Raises:
            ProcessError: The process ended, or was not ready in time.
        """
        return SystemProcess(self.name, self.command(self.task_of(task).to_json()), threads=task.threads)


def peer_systems(peers: Iterable[Peer], cache: Path) -> tuple[list[System], dict[str, str]]:
    """Makes the peers' environments; returns the systems, and name → reason for each environment that can't be made."""
    systems, missing = [], {}
    for peer in peers:
        try:
            python = environment(peer.library.module, peer.library.packages, cache=cache)
        except PeerEnvironmentError as error:
            missing[peer.name] = str(error)
        else:
            systems.append(System(peer, python))
    return systems, missing

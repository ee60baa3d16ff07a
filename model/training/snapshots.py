"""Snapshots of a training under way: what ``murho train --resume`` goes on from.

A training is a row of fits. Those that are done are kept with their outcome and are not repeated; the one under way
is kept with all that its next step depends on, so that it goes on to the same parameters, bit for bit on the CPU.
All of it lies in ``CHECKPOINTS/NAME/.training/``, see `model.training.snapshot_files`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from murho.model.errors import CheckpointError, OptionError
from murho.model.fitting.fit_state import FitState
from murho.model.training.fingerprint import changes, differences
from murho.model.training.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from murho.model.fitting.fit_state import Keeper

__all__ = ["DIRECTORY", "SECONDS_BETWEEN_SNAPSHOTS", "Snapshots"]

DIRECTORY = ".training"
"""Hidden, so that whoever lists checkpoints passes over it."""
SECONDS_BETWEEN_SNAPSHOTS = 30.0
LEAST_RATIO = 200.0
"""Time between snapshots over the time that the last one took: large networks are written less often."""

UNDER_WAY, FINISHED, FAILED = "under way", "finished", "failed"


class Snapshots:
    """Keeps the states and the outcomes of the fits of one training; fits go by names that its search gives them.

    A context: at its end the snapshot stays for a later ``--resume``, unless `remove` was called.

    Attributes:
        carried: Seconds that the parts of the training before this process have taken.
        resumable: Whether there is a snapshot of this training to go on from.
    """

    def __init__(
        self,
        home: Path | None = None,
        *,
        resume: bool = False,
        seconds: float = SECONDS_BETWEEN_SNAPSHOTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reads and writes nothing yet.

        Args:
            home: ``CHECKPOINTS/NAME``; None: nothing is kept.
            resume: Whether to go on from what is there.
            seconds: Least time between two snapshots of a fit; 0: one after every epoch.
            clock: Monotonic seconds.
        """
        self.carried, self.resumable = 0.0, False
        self._files = None if home is None else SnapshotFiles(home / DIRECTORY)
        self._resume, self._seconds, self._clock = resume, seconds, clock
        self._fingerprint: Mapping[str, Any] = {}
        self._fits: dict[str, dict[str, Any]] = {}
        self._say: Callable[[str], None] = lambda _: None
        self._began = self._written = self._clock()
        self._cost = 0.0
        self._complained = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._files is not None:
            self._files.release()

    def begin(self, fingerprint: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """Takes up what an interrupted training has left, or says that there is something.

        Args:
            fingerprint: See `model.training.fingerprint.make_fingerprint`.
            say: Is told what is there, and what can't be kept.

        Raises:
            OptionError: What is there is of another table or of other options; says what differs. Or a training
                of the same name is running.
            CheckpointError: It is damaged.
        """
        self._fingerprint, self._say = fingerprint, say
        self._began = self._written = self._clock()
        if self._files is None:
            return
        if not self._files.acquire():
            if self._resume:
                raise OptionError(
                    f"--resume: a training of the same name is running, it holds {self._files.directory}; "
                    "wait for its end, or stop it"
                )
            say("a training of the same name is running: this one keeps no snapshots")
            return
        try:
            there = self._files.read_index()
        except CheckpointError:
            if self._resume:
                raise
            return  # the first snapshot of this training replaces it
        if there is None:
            if self._resume:
                say("nothing to resume: training from the start")
            return
        reasons = differences(there["fingerprint"], fingerprint)
        if self._resume:
            if reasons:
                raise OptionError(
                    f"--resume: the training in {self._files.directory} is another one: {'; '.join(reasons)}. "
                    "Give the same table and options, or leave out --resume to train from the start"
                )
            self._take_up(self._files, there)
        elif reasons:
            say("an interrupted training with another table or other options is there: this one replaces it")
        else:
            say("an interrupted training of this table is there: --resume continues it; this one replaces it")

    def _take_up(self, files: SnapshotFiles, there: Mapping[str, Any]) -> None:
        self._fits, self.carried, self.resumable = there["fits"], float(there["seconds"]), True
        for entry in self._fits.values():
            if entry["file"] is not None:
                files.check(entry["file"], entry["sha256"])  # rather now than after hours
        changed = changes(there["fingerprint"], self._fingerprint)
        if "learning_rate" in changed:
            # With smaller steps a fit that failed may do better, from its last good state or from the start.
            for entry in self._fits.values():
                entry["status"] = UNDER_WAY if entry["status"] == FAILED else entry["status"]
        done = sum(entry["status"] == FINISHED for entry in self._fits.values())
        fits = f"{done} finished fit{'' if done == 1 else 's'}"
        self._say("; ".join([f"resuming after {self.carried:.0f} s with {fits}", *changed.values()]))

    def outcome(self, fit: str) -> FitState | None:
        """What `finish` was given for a fit, or None."""
        return self._state(fit, FINISHED)

    def under_way(self, fit: str) -> FitState | None:
        """The last state that the keeper of a fit was given, or None."""
        return self._state(fit, UNDER_WAY)

    def failure(self, fit: str) -> str | None:
        """What `fail` was given for a fit, or None."""
        entry = self._fits.get(fit)
        return str(entry["message"]) if entry is not None and entry["status"] == FAILED else None

    def spent(self, fit: str) -> float:
        """Seconds that went into the state of a fit under way."""
        entry = self._fits.get(fit)
        return float(entry["numbers"].get("seconds", 0.0)) if entry and entry["status"] == UNDER_WAY else 0.0

    def _state(self, fit: str, status: str) -> FitState | None:
        entry = self._fits.get(fit)
        if self._files is None or entry is None or entry["status"] != status or entry["file"] is None:
            return None
        return FitState(self._files.read_tensors(entry["file"], entry["sha256"]), entry["numbers"])

    def keeper(self, fit: str) -> Keeper:
        """What `model.fitting.fit.fit` gives the states of a fit to."""
        return _FitKeeper(self, fit)

    def due(self) -> bool:
        """Whether it is time for a snapshot of the fit under way."""
        if self._files is None or not self._files.held:
            return False
        wait = max(self._seconds, LEAST_RATIO * self._cost) if self._seconds else 0.0
        return self._clock() - self._written >= wait

    def keep(self, fit: str, state: FitState) -> None:
        """Writes the state of a fit under way."""
        self._write(fit, UNDER_WAY, state)

    def finish(self, fit: str, state: FitState) -> None:
        """Writes the outcome of a fit, in place of its states."""
        self._write(fit, FINISHED, state)

    def fail(self, fit: str, message: str) -> None:
        """Notes that a fit can't go on; its last state stays."""
        entry = self._fits.setdefault(fit, {"file": None, "sha256": None, "numbers": {}})
        entry |= {"status": FAILED, "message": message}
        if self._files is not None and self._files.held and any(e["file"] for e in self._fits.values()):
            self._commit(self._files, self._fits)

    def advice(self, learning_rate: float) -> str:
        """What to do after failures that end a training; empty if nothing of it is kept."""
        states = [entry for entry in self._fits.values() if entry["status"] == FAILED and entry["file"]]
        if not (self.resumable and states):
            return ""
        epoch = len(states[-1]["numbers"]["history"])
        return (
            f". The last good state, of epoch {epoch}, is kept: "
            f"--resume --learning-rate {learning_rate / 4:g} goes on from there"
        )

    def remove(self) -> None:
        """Removes the snapshot: the training is done and its checkpoint is written."""
        self.resumable = False
        if self._files is not None and self._files.held:
            self._files.remove()

    def _write(self, fit: str, status: str, state: FitState) -> None:
        if self._files is None or not self._files.held:
            return
        began = self._clock()
        try:
            file, sha256 = self._files.write_tensors(state.tensors)
        except OSError as error:
            self._complain(error)
        else:
            entry = {"status": status, "file": file, "sha256": sha256, "numbers": state.numbers}
            if self._commit(self._files, self._fits | {fit: entry}):
                self._fits[fit] = entry
        self._written = self._clock()
        self._cost = self._written - began

    def _commit(self, files: SnapshotFiles, fits: Mapping[str, Mapping[str, Any]]) -> bool:
        seconds = self.carried + self._clock() - self._began
        content = {"fingerprint": self._fingerprint, "seconds": seconds, "fits": fits}
        try:
            files.write_index(content, [entry["file"] for entry in fits.values() if entry["file"]])
        except OSError as error:
            self._complain(error)
            return False
        self.resumable = True
        return True

    def _complain(self, error: OSError) -> None:
        """A full disk must not end a fit: it goes on, and says once that it can't be resumed from here."""
        if not self._complained:
            self._say(f"no snapshot could be written: {error.strerror or error}; the fit goes on without")
        self._complained = True


@dataclass(frozen=True, slots=True)
class _FitKeeper:
    """A `model.fitting.fit_state.Keeper`."""

    snapshots: Snapshots
    fit: str

    def due(self) -> bool:
        return self.snapshots.due()

    def keep(self, state: FitState) -> None:
        self.snapshots.keep(self.fit, state)

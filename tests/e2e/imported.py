"""What a service imports until it is ready, compiled code included; starts no threads. For `tests.e2e.warm_start`."""

import gc

from murho.model.runtime import let_threads_sleep

let_threads_sleep()  # as `murho.command_line.main` does before PyTorch is imported

import murho.cli.serve  # noqa: E402
import murho.model.checkpoint.posterior  # noqa: E402
import murho.service.process  # noqa: E402, F401
from murho.model.predictive.compiled_engine import load  # noqa: E402

load()
gc.collect()
gc.freeze()  # what is shared with the children is not looked through, so that it stays shared

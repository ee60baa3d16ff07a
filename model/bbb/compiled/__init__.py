"""The optimiser steps as compiled code."""

from murho.model.compiling import compiled_together

with compiled_together(__name__):
    from murho.model.bbb.compiled import step_kernels  # noqa: F401 - and what it imports

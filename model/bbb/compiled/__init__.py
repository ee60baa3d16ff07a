"""The optimiser steps as compiled code."""

from murho.model.compiling import compile_package

with compile_package(__name__):
    from murho.model.bbb.compiled import step_kernels  # noqa: F401 - and what it imports

"""Answers as compiled code."""

from contextlib import suppress

from murho.model.compiling import compile_package

with compile_package(__name__):
    from murho.model.predictive.compiled import answer_kernels, class_kernels  # noqa: F401

    with suppress(OSError, AttributeError):  # this build of PyTorch has no MKL
        from murho.model.predictive.compiled import forward_kernels  # noqa: F401

"""The Open Inference Protocol V2 over REST: the same predictions, asked for and answered as tensors.

The protocol is https://github.com/kserve/open-inference-protocol, with Triton's extensions for binary tensors, the
model repository and statistics. `routes.v2` has its paths.
"""

"""The engines that compute answers: draws of the weights, the forward pass, PyTorch and compiled code."""

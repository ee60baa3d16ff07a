"""What computes answers: draws of the weights, the forward pass, and the compiled code for processors."""

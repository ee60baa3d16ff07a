"""From a job to its answer: admission, whose turn it is, the compute thread and its passes."""

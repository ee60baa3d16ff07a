"""Parts of `benchmarks.dropout`: a posterior by dropout, one by Bayes by Backprop, and their scores."""

"""From a job to its answer, pass by pass; it knows no protocol."""

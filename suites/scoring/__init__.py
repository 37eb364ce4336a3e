"""Cases about filters, scores, queue order and diagnosis."""

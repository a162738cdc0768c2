"""What comes after an attempt: charges, scores, and the calls of LiteLLM beside the request's own."""

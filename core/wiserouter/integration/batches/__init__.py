"""Whole batches as files: requests in, a batch file for each model out, and the results of the providers settled."""

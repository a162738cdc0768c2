"""Evaluation: replay of logs, simulation, the bench, off-policy estimates, reference policies and plots."""

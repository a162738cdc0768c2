"""Estimates of the rewards and costs of each (context, model), and how they learn and change."""

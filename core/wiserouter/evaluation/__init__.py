"""Evaluation: replay of logs, simulation, the naive choices and the oracle, pictures, a made-up workload."""

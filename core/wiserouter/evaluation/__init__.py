"""Evaluation: replay of logs, the naive choices and the oracle, pictures, a made-up workload."""

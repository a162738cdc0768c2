"""What several tests need: fakes, stubs, servers and made-up workloads."""

"""What every adapter needs; the one core package that adapters import besides `wiserouter` and `wiserouter.errors`."""

"""Routes, metrics, alerts and the page for those who operate the proxy."""

"""The HTTP interfaces of platforms that keep scores, read page by page."""

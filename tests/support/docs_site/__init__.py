"""The documentation as a site: pages, generated reference, Markdown twins, and a check of every link."""

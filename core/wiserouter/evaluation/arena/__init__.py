"""RouterArena (Lu et al. 2025, arXiv 2510.00202): its score, its robustness, and the files of a submission."""

"""Benchmarks of translation, as ratios to a baseline measured in the same run."""

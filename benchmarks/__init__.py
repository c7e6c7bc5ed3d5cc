"""Measurements of wiresum beside Gloo. Run one with `python -m benchmarks.allreduce`, `.switch` or `.scaling`."""

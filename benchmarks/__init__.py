"""Measurements of torch_xla against CPU eager and JAX: `python -m benchmarks`."""

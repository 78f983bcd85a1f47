"""Benchmarks that ship with the package: the verb `bench`."""

"""Fuzzing: mutated inputs for everything that parses external data.

A target is a set of initial inputs and a check that raises on a finding (`engine.Target`); each module lists its own as
`TARGETS`. `python -m tests.fuzz` runs all of them, `make test` a short round with a fixed random seed. Add a regression
test beside the code for each finding.
"""

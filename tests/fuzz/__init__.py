"""Fuzzing: mutated seeds against everything that reads input from outside.

A target is a set of seeds and a check that raises on a finding (`engine.Target`); each module lists its own as
`TARGETS`. `python -m tests.fuzz` runs them all, `make test` a short round with a fixed seed. A finding becomes a
regression test beside the code that it was found in.
"""

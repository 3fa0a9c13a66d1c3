"""Encoding steps that protocols share: turns, tools, ids, media and computer use."""

"""Serving any protocol in front of any other."""

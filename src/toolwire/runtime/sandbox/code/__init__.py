"""Python that a model wrote, which calls tools as functions."""

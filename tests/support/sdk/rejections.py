"""Explain why the types of an SDK reject a body."""

from pydantic import ValidationError


def explain_rejection(error: ValidationError) -> str:
    """Return the error of the union branch that matched furthest; the others concern unrelated forms."""
    deepest = max(error.errors(include_url=False, include_context=False), key=lambda found: len(found["loc"]))
    steps = [str(step) for step in deepest["loc"] if "[" not in str(step)]
    return f"{'.'.join(steps)}: {deepest['msg']}"

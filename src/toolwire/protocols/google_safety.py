"""What both of Google's protocols reject of computer use: a decision that nobody acknowledged."""

from toolwire.codec.check import Object, object_of, text_of

from .google_computer import ACKNOWLEDGED, CONFIRM, DECISION

_SAID = "The safety decision from function call {name} must be acknowledged in the corresponding function response."


def unacknowledged(name: object, arguments: object, response: Object) -> str | None:
    """The words for a call that a person had to agree to, if its result does not say that one did."""
    if object_of(object_of(arguments).get(DECISION)).get("decision") != CONFIRM:
        return None
    if response.get(ACKNOWLEDGED) in (True, "true", "True"):
        return None
    return _SAID.format(name=text_of(name))

"""The probes of one protocol, and the facts of a host profile that their results show."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from toolwire.codec.hosts.profile import EFFORTS, ChoiceRule, EffortRule, HostProfile

Body = dict[str, Any]

USER: Body = {"role": "user", "content": "Hi"}
DEVELOPER_MESSAGES: list[Body] = [{"role": "developer", "content": "Be brief."}, USER]
LATE_SYSTEM_MESSAGES: list[Body] = [
    {"role": "system", "content": "Be brief."},
    USER,
    {"role": "assistant", "content": "Hello."},
    {"role": "system", "content": "Be briefer."},
    USER,
]
"""A conversation with a second system message."""

FUNCTION_NAME = "noop"
PARAMETERS: Body = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
"""The parameters of the function that probes declare; its schema is also legal as a strict one."""

UNKNOWN_MEMBER = "toolwire_probe"
PNG = "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAAFklEQVR42mP4TwAwjCoYVTCqYKQqAAA/aPwuqUTQyAAAAABJRU5ErkJggg=="
"""An image of 32 by 32 pixels, since some models reject smaller ones."""


class ProbeResult(Struct, frozen=True):
    """The results of all probes of a model."""

    host: HostProfile  # the profile before the probes
    model: str
    accepted: Mapping[str, bool]  # by probe

    def choice_rules(self) -> tuple[ChoiceRule, ...]:
        """Return the tool choices that the host accepts; probes of forced ones are named `choice MODE`."""
        probed = [mode for mode in ("required", "named", "allowed") if self.accepted.get(f"choice {mode}")]
        return (ChoiceRule(modes=("auto", "none", *probed)),)

    def effort_rules(self) -> tuple[EffortRule, ...]:
        """Return the efforts that the model accepts; their probes are named `effort WORD`."""
        words = tuple(word for word in EFFORTS if self.accepted.get(f"effort {word}"))
        return (EffortRule(models=(self.model.lower(),), words=words),)

    def media(self) -> tuple[str, ...]:
        """Return the media that the host accepts: none if it rejects images."""
        media = self.host.content.media
        return () if not self.accepted["image"] else media if "image" in media else ("image", *media)

    def refused_members(self, probed: tuple[str, ...]) -> tuple[str, ...]:
        """Return the members of the body that the host refuses; `probed` are those with a probe of the same name."""
        known = [name for name in self.host.fields.refused if name not in probed]
        return (*known, *[name for name in probed if not self.accepted[name]])

    def unknown_members(self) -> str:
        """Return what the host does with unknown members of the body."""
        return "accepted" if self.accepted["unknown member"] else "refused"


class ProbeSet(Struct, frozen=True):
    """The probes of one protocol, by name. Each makes one change to a request for a short answer."""

    request: Body
    """The request that all probes change, without the model."""

    forms: Mapping[str, Body]
    """Forms of the simplest request: the changes of the first accepted one are part of all other probes."""

    changes: Mapping[str, Body]
    """The changes of all other probes."""

    facts: Callable[[ProbeResult], dict[str, Any]]
    """Returns the facts that the results show, by name, such as `messages.roles`."""

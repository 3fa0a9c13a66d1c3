"""The base of all canonical types, with the fields that preserve wire details.

Absent values are `None`. `Raw` is a JSON value as its source text, so that integers of any size, duplicate keys and
spelling survive.
"""

from msgspec import Raw, Struct

__all__ = ["Extras", "Node", "Raw"]

Extras = dict[str, dict[str, Raw]]


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A canonical value. The fields declared here never change its meaning."""

    # Wire values without a canonical field, verbatim, by protocol family. An encoder writes back those of its own
    # family; all others are losses.
    extras: Extras | None = None
    # Wire spelling without meaning (`"anthropic:string"`: the content was a bare string). Never a loss; applied only
    # while the value still admits it.
    wire_form: tuple[str, ...] = ()
    # JSON pointer to the value below its parent in the source. None: under the field's wire name, at its index.
    at: str | None = None

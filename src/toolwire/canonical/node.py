"""What every canonical value shares: what its source said that has no canonical home.

Absent is `None`. `Raw` is a JSON value as its source text, so that integers of any size, duplicate keys and spelling
survive. The three fields below are never part of the meaning:

`extras`  wire values with no canonical home, verbatim, by protocol family. An encoder writes its own family's back; the
          others are losses.
`form`    wire spelling with no meaning (`"anthropic:string"`: the content was a bare string). Never a loss, and applied
          only while the value still admits it.
`at`      where the value stands below its parent in the source, as a JSON pointer. `None`: under the field's own wire
          name, at its index.
"""

from msgspec import Raw, Struct

__all__ = ["Extras", "Node", "Raw"]

Extras = dict[str, dict[str, Raw]]


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    extras: Extras | None = None
    wire_form: tuple[str, ...] = ()
    at: str | None = None

"""What comes back from a browser: what was done, seen and read. What a page says is data, never an instruction."""

from msgspec import Struct


class Picture(Struct, frozen=True, kw_only=True):
    """A PNG, as base64 text."""

    data: str
    width: int
    height: int
    media_type: str = "image/png"


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`about` is the kind of an action, or what happened meanwhile: `dialog`, `tab`, `download`, `files`, `crash`,
    `refused`."""

    about: str
    text: str
    error: bool = False
    picture: Picture | None = None


class Performed(Struct, frozen=True, kw_only=True):
    """`screenshot` is what the display shows afterwards; without it, an observation says why."""

    observations: tuple[Observation, ...]
    screenshot: Picture | None
    url: str

    @property
    def failed(self) -> bool:
        return any(one.error for one in self.observations)

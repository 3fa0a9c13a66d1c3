"""Decode wire objects without losing fields that their type does not declare.

A protocol declares its wire objects as `WireObject` structs. `Reader` first tries a strict typed decode, one pass in C
that rejects unknown fields. Only if that fails, it reads the value field by field:

* Unknown fields, and optional ones of another type, are kept verbatim in `unknown`.
* Null, where the type does not allow it, is recorded in `nulls`.
* A union element with an unknown tag becomes `UnknownVariant`.
* A required field that is missing or wrong raises `DecodeError` with its path.

So no field is dropped by oversight, and the common case costs no more than a typed decode.

RFC 3339 timestamps to seconds since 1970 and back, by arithmetic only.
"""

import re
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from toolwire.canonical.errors import DecodeError


def escape_pointer(name: str) -> str:
    """Encode a name as one step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1") if "~" in name or "/" in name else name


Extra = Annotated[Raw | UnsetType, "extra"]
"""A field that is known by name only and kept verbatim in `extras`."""


class UnknownFields(dict[str, Raw]):
    """Fields that the wire type does not declare.

    A type that msgspec cannot decode, so that a wire field named `unknown` lands here as well.
    """


class NullFields(tuple[str, ...]):
    """Names of null fields whose type does not allow null; not decodable, as `UnknownFields`."""

    __slots__ = ()


class WireObject(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Base class of wire objects, which keep what their type does not declare."""

    unknown: UnknownFields | UnsetType = field(default=UNSET, name="\x7funknown")
    nulls: NullFields | UnsetType = field(default=UNSET, name="\x7fnulls")


class UnknownVariant(Struct):
    """A union element with an unknown tag."""

    tag: str
    body: Raw
    path: str = ""  # JSON pointer to the element


class Mismatch(Exception):
    """Raised for a value that does not have the type of its field."""


W = TypeVar("W")
ReadValue = Callable[[Raw, str], Any]

decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
"""Decode a JSON object into its members, as raw JSON."""
decode_elements = msgspec.json.Decoder(list[Raw]).decode
"""Decode a JSON array into its elements, as raw JSON."""
decode_string = msgspec.json.Decoder(str).decode
"""Decode a JSON string."""
_decode_any = msgspec.json.Decoder().decode
JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

LIMIT_BYTES = 256 * 1024 * 1024
LIMIT_CANDIDATES = 128
"""OpenAI's limit of `n`, the largest of any provider. Encoders open all candidates with a lower index."""

OUTPUT_LIMIT_FIELDS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict"})
"""Output limits. A wrong type is an error here: keeping it as an extra would remove the limit."""


class Reader(Generic[W]):
    """Decodes wire values of one type for one protocol."""

    def __init__(self, kind: Any, protocol: str) -> None:
        self._decode = msgspec.json.Decoder(kind).decode
        self._open_read = _open_reader(kind, protocol)
        self._protocol = protocol

    def read(self, data: bytes | Raw, path: str = "") -> W:
        """Decode a value; raise `DecodeError` if it does not have this type."""
        return self.read_with_exactness(data, path)[0]

    def read_with_exactness(self, data: bytes | Raw, path: str = "") -> tuple[W, bool]:
        """Decode a value, and return it with whether the strict typed decode accepted it."""
        try:
            return self._decode(data), True
        except JSON_ERRORS:
            raw = validate_json(data, self._protocol, path)
        try:
            return self._open_read(raw, path), False
        except Mismatch as mismatch:
            raise DecodeError(self._protocol, path, str(mismatch), describe_json(raw)) from None


def check_candidate_index(index: int, protocol: str, path: str) -> None:
    """Raise `DecodeError` for a candidate index that no provider allows."""
    if not 0 <= index < LIMIT_CANDIDATES:
        raise DecodeError(protocol, path, f"an index from 0 to {LIMIT_CANDIDATES - 1}", str(index))


def validate_json(data: bytes | Raw, protocol: str, path: str = "") -> Raw:
    """Return the JSON without surrounding space; raise `DecodeError` if it is not UTF-8 JSON of bounded size."""
    if isinstance(data, bytes):
        if len(data) > LIMIT_BYTES:
            raise DecodeError(protocol, path, f"at most {LIMIT_BYTES} bytes", f"{len(data)} bytes")
        data = Raw(data)
    text = bytes(data)
    try:
        text.decode()
        return msgspec.json.decode(text, type=Raw)
    except UnicodeDecodeError as error:
        raise DecodeError(protocol, path, "UTF-8", f"byte {text[error.start]:#04x} at offset {error.start}") from None
    except RecursionError:
        raise DecodeError(protocol, path, "bounded nesting", "a value nested too deeply") from None
    except msgspec.DecodeError as error:
        raise DecodeError(protocol, path, "JSON", str(error)) from None


def decode_json(data: bytes | str | Raw) -> Any:
    """Return the value as plain data. A number that Python can't hold, such as 1e999, is kept as `Raw`."""
    try:
        return _decode_any(data)
    except msgspec.ValidationError:  # an untyped value has no other
        return _decode_open(Raw((data.encode() if isinstance(data, str) else bytes(data)).strip()))


def _decode_open(raw: Raw) -> Any:
    match bytes(raw)[:1]:
        case b"{":
            return {name: _decode_open(value) for name, value in decode_members(raw).items()}
        case b"[":
            return [_decode_open(value) for value in decode_elements(raw)]
        case _:
            try:
                return _decode_any(raw)
            except msgspec.ValidationError:
                return raw


def describe_json(raw: Raw) -> str:
    """Return a short description of a JSON value, for an error message."""
    text = bytes(raw)
    match text[:1]:
        case b"{":
            return "an object"
        case b"[":
            return "an array"
        case b"":
            return "nothing"
        case _:
            excerpt = text[:40].decode(errors="replace")
            return excerpt if len(text) <= 40 else excerpt + "..."


# ---- tolerant decoding, field by field


def _open_reader(kind: Any, protocol: str) -> ReadValue:
    """Return a tolerant decoder for a type annotation, for values that the typed decode rejects."""
    members = [m for m in union_members(kind) if m is not UnsetType]
    if len(members) > 1:
        return _open_union(members, protocol)
    (member,) = members
    origin = get_origin(member)
    if origin in (list, tuple):
        return _open_array(get_args(member)[0], origin, protocol)
    if isinstance(member, type) and issubclass(member, WireObject):
        return _open_struct(member, protocol)
    decode = msgspec.json.Decoder(member).decode
    expected = _describe_type(member)

    def open_scalar(raw: Raw, path: str) -> Any:
        """Decode a value of this one type, or raise `Mismatch`."""
        try:
            return decode(raw)
        except JSON_ERRORS:
            raise Mismatch(expected) from None

    return open_scalar


def union_members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union; for any other annotation, itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _describe_type(kind: Any) -> str:
    """Return the name of an expected type, for an error message."""
    if get_origin(kind) in (list, tuple):
        return "an array"
    if (isinstance(kind, type) and issubclass(kind, WireObject)) or get_origin(kind) is dict:
        return "an object"
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false", NoneType: "null"}
    if kind in names:
        return names[kind]
    choices = get_args(kind)
    return "one of " + ", ".join(map(str, choices)) if choices else str(kind)


def _open_array(element: Any, origin: Any, protocol: str) -> ReadValue:
    """Return a tolerant decoder for an array, which decodes its elements one by one."""
    read = _value_reader(element, protocol)

    def open_array(raw: Raw, path: str) -> Any:
        """Decode an array element by element, or raise `Mismatch` for any other value."""
        try:
            elements = decode_elements(raw)
        except JSON_ERRORS:
            raise Mismatch("an array") from None
        return origin(read(value, f"{path}/{index}") for index, value in enumerate(elements))

    return open_array


@cache
def _value_reader(kind: Any, protocol: str) -> ReadValue:
    """Return a decoder that tries the typed decode first, then the tolerant one."""
    decode = msgspec.json.Decoder(kind).decode
    read_open = _open_reader(kind, protocol)

    def read(raw: Raw, path: str) -> Any:
        """Decode a value by its type, or tolerantly if that fails."""
        try:
            return decode(raw)
        except JSON_ERRORS:
            pass
        try:
            return read_open(raw, path)
        except Mismatch as mismatch:
            raise DecodeError(protocol, path, str(mismatch), describe_json(raw)) from None

    return read


def _open_union(members: list[Any], protocol: str) -> ReadValue:
    """Return a tolerant decoder that selects a union member by its tag."""
    shapes = [m for m in members if isinstance(m, type) and issubclass(m, WireObject)]
    tagged = {m.__struct_config__.tag: _open_struct(m, protocol) for m in shapes if m.__struct_config__.tag is not None}
    tag_field = next((m.__struct_config__.tag_field for m in shapes if m.__struct_config__.tag_field), "type")
    untagged = next((_open_struct(m, protocol) for m in shapes if m.__struct_config__.tag is None), None)
    readers = [_open_reader(m, protocol) for m in members if m not in shapes]
    expected = " or ".join(dict.fromkeys(_describe_type(m) for m in members if m is not NoneType))

    def open_union(raw: Raw, path: str) -> Any:
        """Decode a value as the union member that its tag or type selects; an unknown tag gives `UnknownVariant`."""
        if shapes and bytes(raw)[:1] == b"{":
            if untagged is not None and not tagged:
                return untagged(raw, path)
            tag = _read_tag(raw, tag_field)
            if tag is not None and (reader_for_tag := tagged.get(tag)) is not None:
                return reader_for_tag(raw, path)
            if tag is None:
                raise DecodeError(protocol, f"{path}/{tag_field}", "a string", "nothing")
            return UnknownVariant(tag, raw, path)
        for reader in readers:
            try:
                return reader(raw, path)
            except Mismatch:
                continue
        raise Mismatch(expected)

    return open_union


def _read_tag(raw: Raw, tag_field: str) -> str | None:
    """Return the tag of a JSON object; None if it is missing or not a string."""
    value = decode_members(raw).get(tag_field)
    if value is None:
        return None
    tag = decode_json(value)
    return tag if isinstance(tag, str) else None


@cache
def _field_openers(kind: type[WireObject], protocol: str) -> dict[str, tuple[str, ReadValue, bool, bool]]:
    """Return, by wire name: the attribute, its decoder, whether the field is required, and whether it may be null."""
    hints = get_type_hints(kind)
    openers = {}
    for spec in msgspec.structs.fields(kind):
        if not spec.encode_name.startswith("\x7f"):
            hint = hints[spec.name]
            openers[spec.encode_name] = (
                spec.name,
                _open_reader(hint, protocol),
                spec.required,
                not {NoneType, Raw, Any}.isdisjoint(union_members(hint)),
            )
    return openers


@cache
def _structural_fields(kind: type[WireObject]) -> frozenset[str]:
    """Return the fields that hold arrays or objects of known type, where another type is an error."""
    hints = get_type_hints(kind)
    return frozenset(
        name for name, hint in hints.items() if any(_is_structure(member) for member in union_members(hint))
    )


def _is_structure(member: Any) -> bool:
    """Return whether a type is an array or a wire object."""
    return get_origin(member) in (list, tuple) or (isinstance(member, type) and issubclass(member, WireObject))


def _open_struct(kind: type[WireObject], protocol: str) -> ReadValue:
    """Return a tolerant decoder for a wire object, which keeps unknown fields and those of another type."""
    tag_field = kind.__struct_config__.tag_field
    tag = kind.__struct_config__.tag

    def open_struct(raw: Raw, path: str) -> Any:
        """Decode an object field by field, and keep unknown fields apart."""
        try:
            values = decode_members(raw)
        except JSON_ERRORS:
            raise Mismatch("an object") from None
        if tag_field is not None and tag_field not in values:
            raise DecodeError(protocol, f"{path}/{tag_field}", repr(tag), "nothing")
        openers = _field_openers(kind, protocol)  # resolved late, since types may contain themselves
        structural = _structural_fields(kind)
        known: dict[str, Any] = {}
        unknown = UnknownFields()
        nulls: list[str] = []
        for name, value in values.items():
            if name == tag_field:
                if decode_json(value) != tag:
                    raise DecodeError(protocol, f"{path}/{name}", f'"{tag}"', describe_json(value))
                continue
            if (entry := openers.get(name)) is None:
                unknown[name] = value
                continue
            attribute, opener, required, nullable = entry
            if not nullable and not required and bytes(value) == b"null":
                nulls.append(name)
                continue
            try:
                known[attribute] = opener(value, f"{path}/{escape_pointer(name)}")
            except Mismatch as mismatch:
                if required or attribute in structural or attribute in OUTPUT_LIMIT_FIELDS:
                    raise DecodeError(
                        protocol, f"{path}/{escape_pointer(name)}", str(mismatch), describe_json(value)
                    ) from None
                unknown[name] = value
        _check_required(openers, known, protocol, path)
        return kind(**known, unknown=unknown or UNSET, nulls=NullFields(nulls) or UNSET)

    return open_struct


def _check_required(
    openers: dict[str, tuple[str, ReadValue, bool, bool]], known: dict[str, Any], protocol: str, path: str
) -> None:
    """Raise `DecodeError` for a required field that is missing."""
    for name, (attribute, _, required, _) in openers.items():
        if required and attribute not in known:
            raise DecodeError(protocol, f"{path}/{escape_pointer(name)}", "a value", "nothing")


class _TypeTag(Struct):
    """The `type` member of any object."""

    type: str | None = None


_decode_type_tag = msgspec.json.Decoder(_TypeTag).decode


def tag_of(raw: Raw) -> str | None:
    """Return the `type` of a JSON object; None if it is missing or not a string."""
    try:
        return _decode_type_tag(raw).type
    except JSON_ERRORS:
        return None


_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))")
_SECONDS_PER_DAY = 86_400


def decode_timestamp(text: str) -> int | float | None:
    """Return the seconds since 1970 for an RFC 3339 timestamp; None if the text is none."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        return None
    seconds = _days_since_epoch(year, month, day) * _SECONDS_PER_DAY + hour * 3600 + minute * 60 + second
    if match[8] is not None:
        offset = int(match[9]) * 3600 + int(match[10]) * 60
        seconds += offset if match[8] == "-" else -offset
    return seconds + float("0." + match[7]) if match[7] is not None and int(match[7]) else seconds


def encode_timestamp(seconds: float) -> str:
    """Format seconds since 1970 as a UTC timestamp."""
    full_seconds = int(seconds // 1)
    days, time_of_day = divmod(full_seconds, _SECONDS_PER_DAY)
    year, month, day = _date_of(days)
    clock = f"{time_of_day // 3600:02}:{time_of_day % 3600 // 60:02}:{time_of_day % 60:02}"
    fraction = f"{seconds - full_seconds:.6f}"[1:].rstrip("0").rstrip(".") if seconds != full_seconds else ""
    return f"{year:04}-{month:02}-{day:02}T{clock}{fraction}Z"


def _days_since_epoch(year: int, month: int, day: int) -> int:
    """Return the days since 1970; years start in March, so that the leap day comes last."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 1970."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return year + era * 400 + (month <= 2), month, day_of_year - (153 * month_from_march + 2) // 5 + 1

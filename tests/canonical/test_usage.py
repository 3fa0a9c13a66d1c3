"""Sums of usage."""

import msgspec
from msgspec.structs import asdict

from toolwire.canonical.response import Usage, add_usage


def test_every_count_is_summed() -> None:
    names = [name for name in Usage.__struct_fields__ if asdict(Usage())[name] is None and name not in _OTHER_FIELDS]
    first, second = (msgspec.convert(dict.fromkeys(names, count), Usage) for count in (2, 3))
    total = add_usage(first, second)
    assert {name: getattr(total, name) for name in names} == dict.fromkeys(names, 5)
    assert {"input_tokens", "searches", "fetches", "cost"} <= set(names)


_OTHER_FIELDS = ("extras", "at")

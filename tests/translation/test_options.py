"""Options of translations: a misspelt word or a value of another type is an error, never ignored."""

from typing import Any

import pytest

import toolwire as tw
from toolwire.codec.envelope import EnvelopeKey

REQUEST = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
translate: Any = tw.translate
translate_stream: Any = tw.translate_stream


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strict": "eror"}, r"strict='eror' is unknown; did you mean \"error\"\?"),
        ({"strict": 5}, "strict=5 is unknown; use one of False, True, 'error'"),
        ({"cache": "atuo"}, r"cache='atuo' is unknown; did you mean \"auto\"\?"),
        ({"hosted_tools": "refuze"}, r"hosted_tools='refuze' is unknown; did you mean \"refuse\"\?"),
        ({"binary_results": "sumary"}, r"binary_results='sumary' is unknown; did you mean \"summary\"\?"),
        ({"tool_call_parser": "atuo"}, "unknown tool_call_parser 'atuo'; expected auto"),
        ({"reasoning_parser": "x"}, "unknown reasoning_parser 'x'; expected auto"),
        ({"tool_call_parser": 5}, "tool_call_parser=5 is invalid: use a string"),
        ({"model": 5}, "model=5 is invalid: use a string"),
        ({"version": 5}, "version=5 is invalid: use a string"),
        ({"site": 5}, "site=5 is invalid: use a string"),
        ({"title": 5}, "title=5 is invalid: use a string"),
        ({"stream": "no"}, "stream='no' is unknown; use one of None, True, False"),
        ({"host": []}, r"unknown host profile \[\]; expected one of"),
        ({"request": REQUEST}, "request=... is for kind='response': the request to translate is the first argument"),
        ({"envelope_key": b"secret"}, r"envelope_key is bytes: use .*EnvelopeKey\(\[secret\]\)"),
        ({"kind": "reply"}, "kind='reply' is unknown; use one of 'request', 'response', 'error'"),
    ],
)
def test_unknown_value_of_an_option_is_an_error_that_names_the_known_ones(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        translate(REQUEST, "openai-chat", "anthropic", **options)


@pytest.mark.parametrize(
    ("chunks", "options", "message"),
    [
        ([b""], {"hosted_tools": "refuze"}, r"did you mean \"refuse\"\?"),
        ([b""], {"envelope_key": "secret"}, "envelope_key is str: use"),
        ([b""], {"model": 5}, "model=5 is invalid: use a string"),
        ([b""], {"tool_call_parser": "atuo"}, "unknown tool_call_parser 'atuo'"),
        ("data: {}", {}, "chunks='data: {}' is invalid: use bytes, or an iterable of bytes"),
    ],
)
def test_options_of_streams_are_checked_before_the_first_chunk(
    chunks: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        translate_stream(chunks, "openai-chat", "anthropic", **options)


@pytest.mark.parametrize("keys", [b"secret", "secret", ["secret"], 5])
def test_keys_of_envelopes_are_a_list_of_bytes(keys: Any) -> None:
    with pytest.raises(TypeError, match="must be a list of bytes"):
        EnvelopeKey(keys)

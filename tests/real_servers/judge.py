"""Judge Chat requests with the packages of vendors: one request per line of stdin, one verdict per line of stdout.

Runs in the environment of `make test-servers`. A verdict is null, or the reason why the vendor's package refuses it.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.sdk.request_types import RequestTypeBuilder


def judge_mistral(body: dict[str, Any]) -> None:
    """Check with the types of the SDK, and with the rules for the order of messages that the server applies."""
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.protocol.instruct.validator import MistralRequestValidatorV15, ValidationMode
    from mistralai.client.models import ChatCompletionRequest as SdkRequest

    unknown = body.keys() - SdkRequest.model_fields.keys()
    if unknown:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    SdkRequest.model_validate(body)
    known = {name: value for name, value in body.items() if name in ChatCompletionRequest.model_fields}
    known.pop("response_format", None)
    known["messages"] = [_join_thinking(message) for message in known["messages"]]
    request = ChatCompletionRequest.model_validate(known)
    MistralRequestValidatorV15(mode=ValidationMode.serving).validate_request(request)


def _join_thinking(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the thinking of each part as one string.

    The API takes a list of texts, as the SDK's types say. `mistral-common` checks what the server makes of it.
    """
    if not isinstance(message.get("content"), list):
        return message
    content = [
        part | {"thinking": "".join(text["text"] for text in part["thinking"])} if part["type"] == "thinking" else part
        for part in message["content"]
    ]
    return message | {"content": content}


def judge_groq(body: dict[str, Any]) -> None:
    """Check with the types of the SDK, which lacks `stream_options` of the API reference."""
    from groq.types.chat.completion_create_params import CompletionCreateParams

    body.pop("stream_options", None)
    RequestTypeBuilder(unknown_fields=False).adapter(CompletionCreateParams).validate_python(body)


def judge_cerebras(body: dict[str, Any]) -> None:
    """Check with the types of the SDK."""
    from cerebras.cloud.sdk.types.chat.completion_create_params import CompletionCreateParams

    RequestTypeBuilder(unknown_fields=False).adapter(CompletionCreateParams).validate_python(body)


def judge_zai(body: dict[str, Any]) -> None:
    """Check that the SDK's method has a parameter for each field."""
    import inspect

    from zai.api_resource.chat.completions import Completions

    unknown = body.keys() - inspect.signature(Completions.create).parameters.keys()
    if unknown:
        raise ValueError(f"unknown fields {sorted(unknown)}")


JUDGES = {"mistral": judge_mistral, "groq": judge_groq, "cerebras": judge_cerebras, "zai": judge_zai}


def main() -> None:
    judge = JUDGES[sys.argv[1]]
    for line in sys.stdin:
        try:
            judge(json.loads(line))
        except Exception as error:  # noqa: BLE001 - whatever the package raises is its refusal
            print(json.dumps(f"{type(error).__name__}: {error}"), flush=True)
        else:
            print("null", flush=True)


if __name__ == "__main__":
    main()

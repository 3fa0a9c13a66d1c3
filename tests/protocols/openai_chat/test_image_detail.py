"""The image detail `original`, which OpenAI's newest models added."""

import pytest

import toolwire as tw

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "original"}
BODY = {"model": "m", "input": [{"role": "user", "content": [IMAGE]}]}


@pytest.mark.parametrize(("host", "detail"), [("openai", "original"), ("groq", "high"), ("generic", "high")])
def test_detail_is_one_that_the_host_accepts(host: str, detail: str) -> None:
    translation = tw.translate(BODY, "openai-responses", "openai-chat", host=host)
    assert translation.value["messages"][0]["content"][0]["image_url"]["detail"] == detail
    assert ("/input/0/content/0/detail" in [loss.path for loss in translation.losses]) == (detail == "high")

"""Answers of four Chat Completions servers, each in its own shape, different in every field."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from msgspec import Struct

from benchmarks.gateway.agents import NONCE, Agent, Turn, Writer, chat_answer, to_json

_MODELS = {
    "openai": ("gpt-6-2026-08-01", "gpt-6-mini-2026-08-01"),
    "vllm": ("Qwen/Qwen3.8-Coder-480B", "moonshotai/Kimi-K3"),
    "deepseek": ("deepseek-v4-pro", "deepseek-flash"),
    "llamacpp": ("gpt-oss-120b-mxfp4.gguf", "unsloth/GLM-5-Air-GGUF"),
}
_LARGEST_MARKER = 16

Chunk = dict[str, Any]


class Answer(Struct):
    """One answer and the values that all of its chunks repeat."""

    server: str
    turn: Turn
    random: Random
    head: dict[str, Any]
    usage: dict[str, Any]
    reasoning: str


def draw_answer(writer: Writer, agent: Agent, turn: Turn, *, reasoning: bool = True) -> Answer:
    random = writer.random
    prompt, cached, completion = random.randint(200, 90_000), random.randint(0, 200), random.randint(5, 3000)
    thought = writer.prose(40, 1500) if reasoning and agent.server != "openai" and random.random() < 0.4 else ""
    return Answer(
        agent.server,
        turn,
        random,
        _head(agent.server, random),
        _usage(agent.server, prompt, cached, completion, random),
        thought,
    )


def _head(server: str, random: Random) -> dict[str, Any]:
    unique = f"{NONCE}{random.getrandbits(64):016x}"
    created = 1_790_000_000 + random.randrange(10_000_000)
    model = random.choice(_MODELS[server])
    match server:
        case "openai":
            fingerprint = random.choice([None, f"fp_{random.getrandbits(40):010x}"])
            head = {"id": f"chatcmpl-{unique}", "object": "", "created": created, "model": model}
            return head | {"service_tier": "default", "system_fingerprint": fingerprint}
        case "deepseek":
            head = {"id": f"{unique[:8]}-4cf1-9a77-{unique[8:20]}", "object": "", "created": created, "model": model}
            return head | {"system_fingerprint": f"fp_{random.getrandbits(40):010x}_prod0820_fp8_kvcache"}
        case "vllm":
            return {"id": f"chatcmpl-{unique}", "object": "", "created": created, "model": model}
        case _:
            fingerprint = f"b{random.randint(6000, 9000)}-{random.getrandbits(32):08x}"
            head = {"created": created, "id": f"chatcmpl-{unique}", "model": model}
            return head | {"system_fingerprint": fingerprint, "object": ""}


def _usage(server: str, prompt: int, cached: int, completion: int, random: Random) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    match server:
        case "openai":
            details = {"reasoning_tokens": random.randint(0, completion), "audio_tokens": 0}
            details |= {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
            prompt_details = {"cached_tokens": cached, "audio_tokens": 0}
            return counts | {"prompt_tokens_details": prompt_details, "completion_tokens_details": details}
        case "vllm":
            total = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
            return total | {"prompt_tokens_details": random.choice([None, {"cached_tokens": cached}])}
        case "deepseek":
            counts |= {"prompt_tokens_details": {"cached_tokens": cached}}
            return counts | {"prompt_cache_hit_tokens": cached, "prompt_cache_miss_tokens": prompt - cached}
        case _:
            return {"completion_tokens": completion, "prompt_tokens": prompt, "total_tokens": prompt + completion}


def _timings(answer: Answer) -> dict[str, Any]:
    random, usage = answer.random, answer.usage
    spent = {"prompt": random.uniform(20, 900), "predicted": random.uniform(100, 9000)}
    timings: dict[str, Any] = {"cache_n": random.randint(0, 5000)}
    for name, count in (("prompt", usage["prompt_tokens"]), ("predicted", usage["completion_tokens"])):
        per_token = spent[name] / count
        timings |= {f"{name}_n": count, f"{name}_ms": round(spent[name], 3)}
        timings |= {f"{name}_per_token_ms": per_token, f"{name}_per_second": 1000 / per_token}
    return timings


def encode_body(answer: Answer) -> bytes:
    turn, head = answer.turn, answer.head | {"object": "chat.completion"}
    message = chat_answer(turn)
    reason = "tool_calls" if turn.calls else "stop"
    match answer.server:
        case "openai":
            message |= {"refusal": None, "annotations": []}
            choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
            rest = {name: head.pop(name) for name in ("service_tier", "system_fingerprint")}
            # OpenAI indents bodies.
            return json.dumps(
                head | {"choices": [choice], "usage": answer.usage} | rest, indent=2, ensure_ascii=False
            ).encode()
        case "vllm":
            message |= {"refusal": None, "annotations": None, "audio": None, "function_call": None}
            message |= {"tool_calls": message.get("tool_calls", []), "reasoning": answer.reasoning or None}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason, "stop_reason": None}
            choice |= {"token_ids": None}
            rest = {"service_tier": None, "system_fingerprint": None, "usage": answer.usage, "prompt_logprobs": None}
            body = head | {"choices": [choice]} | rest | {"prompt_token_ids": None, "kv_transfer_params": None}
        case "deepseek":
            for index, call in enumerate(message.get("tool_calls", [])):
                message["tool_calls"][index] = {"index": index} | call
            message["content"] = message["content"] or ""
            if answer.reasoning:
                message["reasoning_content"] = answer.reasoning
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
            fingerprint = {"system_fingerprint": head.pop("system_fingerprint")}
            body = head | {"choices": [choice], "usage": answer.usage} | fingerprint
        case _:
            thought = {"reasoning_content": answer.reasoning} if answer.reasoning else {}
            message = {"role": "assistant"} | thought | message
            body = {"choices": [{"finish_reason": reason, "index": 0, "message": message}]} | head
            body |= {"usage": answer.usage, "timings": _timings(answer)}
    return to_json(body).encode()


# ---- streams


def encode_stream(answer: Answer) -> list[bytes]:
    """Return the frames of a stream."""
    reason = "tool_calls" if answer.turn.calls else "stop"
    role: dict[str, Any] = {"role": "assistant", "content": "" if answer.server != "llamacpp" else None}
    chunks = [_chunk(answer, role)]
    chunks += [_chunk(answer, delta) for delta in _deltas(answer)]
    chunks += list(_last_chunks(answer, reason))
    return [b"data: %b\n\n" % to_json(chunk).encode() for chunk in chunks] + [b"data: [DONE]\n\n"]


def _deltas(answer: Answer) -> Iterator[dict[str, Any]]:
    thought = "reasoning" if answer.server == "vllm" else "reasoning_content"
    # DeepSeek spells the absent one of the two texts.
    empty = {"content": None} if answer.server == "deepseek" else {}
    for fragment in _fragments(answer.reasoning, answer.random):
        yield empty | {thought: fragment}
    empty = {thought: None} if answer.server == "deepseek" and answer.reasoning else {}
    for fragment in _fragments(answer.turn.text, answer.random):
        yield {"content": fragment} | empty
    for index, call in enumerate(answer.turn.calls):
        function: dict[str, Any] = {"name": call.name, "arguments": ""}
        start = {"index": index, "id": call.id, "type": "function", "function": function}
        yield {"tool_calls": [start]}
        for fragment in _fragments(to_json(call.input), answer.random):
            yield {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}


def _fragments(text: str, random: Random) -> Iterator[str]:
    """Split a text as a tokenizer does, but no marker."""
    position = 0
    while position < len(text):
        end = position + random.randint(1, 8)
        cut = text.find("~", position, end)
        if cut == position:
            end = position + _LARGEST_MARKER
        elif cut > position:
            end = cut
        yield text[position:end]
        position = end


def _chunk(answer: Answer, delta: dict[str, Any], reason: str | None = None) -> Chunk:
    head = answer.head | {"object": "chat.completion.chunk"}
    match answer.server:
        case "openai":
            choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            padding = f"{answer.random.getrandbits(64):x}"[: answer.random.randint(1, 16)]
            return head | {"choices": [choice], "usage": None, "obfuscation": padding}
        case "vllm":
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            return head | {"choices": [choice | ({"stop_reason": None} if reason else {"token_ids": None})]}
        case "deepseek":
            return head | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
        case _:
            return {"choices": [{"finish_reason": reason, "index": 0, "delta": delta}]} | head


def _last_chunks(answer: Answer, reason: str) -> Iterator[Chunk]:
    match answer.server:
        case "deepseek":
            yield _chunk(answer, {"content": ""}, reason) | {"usage": answer.usage}
        case "llamacpp":
            yield _chunk(answer, {}, reason)
            yield _chunk(answer, {}) | {"choices": [], "usage": answer.usage, "timings": _timings(answer)}
        case _:
            yield _chunk(answer, {}, reason)
            yield _chunk(answer, {}) | {"choices": [], "usage": answer.usage}

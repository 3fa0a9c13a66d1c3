"""The fields that OpenRouter has of those that are kept for its family: Chat's, and its own."""

from toolwire.codec.check import words
from toolwire.protocols.openai_chat.rules.vocabulary import KNOWN as CHAT

_ANSWER = CHAT["Response"] | words("alignment openrouter_metadata provider safeguard_results service_tier")
_CHOICE = words("logprobs native_finish_reason")
KNOWN = {
    "Request": words("cache_control debug deferred_tools image_config logit_bias min_p modalities models plugins")
    | words("prediction preset provider reasoning repetition_penalty route session_id stop_server_tools_when top_a")
    | words("trace transforms usage"),
    "Message": words("images reasoning_details"),
    "Text": words("cache_control"),
    "FunctionTool": words("cache_control defer_loading"),
    "Sampling": CHAT["Sampling"],
    "Response": _ANSWER,
    "ResponseStart": _ANSWER,
    "ResponseEnd": _ANSWER,
    "Candidate": _CHOICE,
    "Stopped": _CHOICE,
    "PartDelta": _CHOICE,
    "Notice": _CHOICE,
    "Usage": CHAT["Usage"]
    | words("cost cost_details is_byok server_tool_use_details prompt_tokens_details/video_tokens")
    | words("server_tool_use_details/web_search_requests server_tool_use_details/tool_calls_requested")
    | words("server_tool_use_details/tool_calls_executed"),
}

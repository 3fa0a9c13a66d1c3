"""The extras of Chat's family that OpenRouter has: those of Chat and its own."""

from toolwire.codec.validation import word_set
from toolwire.protocols.openai_chat.fields import SHARED_FIELDS as CHAT

_RESPONSE_FIELDS = CHAT["Response"] | word_set("alignment openrouter_metadata provider safeguard_results service_tier")
_CHOICE_FIELDS = word_set("logprobs native_finish_reason")
SHARED_FIELDS = {
    "Request": word_set("cache_control debug deferred_tools image_config logit_bias min_p modalities models plugins")
    | word_set("prediction preset provider reasoning repetition_penalty route session_id stop_server_tools_when top_a")
    | word_set("trace transforms usage"),
    "Message": word_set("images reasoning_details"),
    "Text": word_set("cache_control"),
    "FunctionTool": word_set("cache_control defer_loading"),
    "Sampling": CHAT["Sampling"],
    "Response": _RESPONSE_FIELDS,
    "ResponseStart": _RESPONSE_FIELDS,
    "ResponseEnd": _RESPONSE_FIELDS,
    "Candidate": _CHOICE_FIELDS,
    "CandidateEnd": _CHOICE_FIELDS,
    "PartDelta": _CHOICE_FIELDS,
    "Notice": _CHOICE_FIELDS,
    "Usage": CHAT["Usage"]
    | word_set("cost cost_details is_byok server_tool_use_details prompt_tokens_details/video_tokens")
    | word_set("server_tool_use_details/web_search_requests server_tool_use_details/tool_calls_requested")
    | word_set("server_tool_use_details/tool_calls_executed"),
}

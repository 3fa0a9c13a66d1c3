"""Marks around reasoning and around the answer, by the names that vLLM gives its reasoning parsers."""

from msgspec import Struct


class ReasoningMarks(Struct, frozen=True):
    """The marks of reasoning in one format; those that begin with a letter count only at the beginning of text."""

    openers: tuple[str, ...]
    closer: str
    stray: bool = False  # the prompt often opens the block, so that only the closer is seen
    interleaved: bool = False  # may also begin after text, on a line of its own


class AnswerMarks(Struct, frozen=True):
    """Marks around the answer itself, which are left out."""

    openers: tuple[str, ...]
    closers: tuple[str, ...] = ()
    after_reasoning: bool = False  # counts only right after reasoning, since it could be the answer's own


THINK = ReasoningMarks(("<think>",), "</think>", stray=True)
REASONING_MARKS: dict[str, ReasoningMarks] = {
    "think": THINK,
    "thinking": ReasoningMarks(("<thinking>",), "</thinking>"),
    "thought": ReasoningMarks(("<thought>",), "</thought>"),
    "reasoning": ReasoningMarks(("<reasoning>",), "</reasoning>"),
    "mistral": ReasoningMarks(("[THINK]",), "[/THINK]", stray=True),
    "seed_oss": ReasoningMarks(("<seed:think>",), "</seed:think>", stray=True),
    "minimax_m3": ReasoningMarks(("<mm:think>",), "</mm:think>", stray=True),
    "kimi_vl": ReasoningMarks(("◁think▷",), "◁/think▷", stray=True),
    "cohere_command": ReasoningMarks(("<|START_THINKING|>",), "<|END_THINKING|>", stray=True),
    "apertus": ReasoningMarks(("<|inner_prefix|>",), "<|inner_suffix|>"),
    "gemma4": ReasoningMarks(("<|channel>thought\n", "<|channel>"), "<channel|>"),
    "gpt_oss": ReasoningMarks(
        ("<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>analysis<|message|>"), "<|end|>"
    ),
    "granite": ReasoningMarks(("Here is my thought process:", "Here's my thought process:"), "Here is my response:"),
    "kimi_k3": ReasoningMarks(("<|open|>think<|sep|>",), "<|close|>think<|sep|>", stray=True),
    "muse_glimmer": ReasoningMarks(("to=self<|message|>", "<|start|>assistant to=self<|message|>"), "<|eom|>"),
}

OPEN_REASONING = {"deepseek_r1": THINK, "qwen3_thinking": THINK, "think_open": THINK}
"""Reasoning parsers for models whose prompt opens the block: an answer begins as reasoning."""

ANSWER_MARKS = (
    AnswerMarks(("<|START_RESPONSE|>", "<|START_TEXT|>"), ("<|END_RESPONSE|>", "<|END_TEXT|>")),
    AnswerMarks(("<answer>",), ("</answer>",), after_reasoning=True),
    AnswerMarks(("<response>",), ("</response>",), after_reasoning=True),
    AnswerMarks(("<|open|>response<|sep|>",), ("<|close|>response<|sep|>", "<|close|>message<|sep|>")),
    AnswerMarks(
        (
            "<|channel|>final<|message|>",
            "<|channel|>commentary<|message|>",
            "<|start|>assistant<|channel|>final<|message|>",
            "<|start|>assistant<|channel|>commentary<|message|>",
        ),
        ("<|return|>", "<|end|>"),
    ),
    AnswerMarks(("to=user<|message|>", "<|start|>assistant to=user<|message|>"), ("<|eom|>",)),
    AnswerMarks(("<|message_model|><|content_text|>", "<|content_text|>"), ("<|end_message|>",)),
)

TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<|eot|>",
    "<｜end▁of▁sentence｜>",
    "<|end▁of▁sentence|>",
    "<end_of_turn>",
    "<turn|>",
    "[e~[",
    "</s>",
)
"""Marks of a turn's end, which are dropped where they are last."""

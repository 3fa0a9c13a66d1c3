"""The `ask_user` tool: asks the user of the run a question."""

from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError
from toolwire.runtime.tools.workspace import object_schema, string_list_schema, string_schema

ANSWER_TIMEOUT = 24 * 60 * 60.0


def ask_user_tools() -> list[Tool]:
    """Return the `ask_user` tool."""

    async def run(arguments: Arguments, context: ToolContext) -> str:
        """Ask the user, and return the answer; raise `ToolError` if there is none."""
        answer = await context.approver.answer(arguments["question"], tuple(arguments.get("choices", ())))
        if answer is None:
            raise ToolError("no user is available: decide without an answer, or say what is missing", "no_answer")
        return answer

    tool = Tool(
        name="ask_user",
        run=run,
        description="Asks the user a question. Use it for decisions that only the user can make.",
        parameters=object_schema(
            ("question",),
            question=string_schema("The question, understandable without context."),
            choices=string_list_schema("Possible answers, if there are only a few."),
        ),
        annotations=Annotations(read_only=True),
        locus="human",
        source="built-in",
        timeout=ANSWER_TIMEOUT,
        retries=0,
    )
    return [tool]

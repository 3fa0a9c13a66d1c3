"""`ask_user`: a question to the person whom the run is for."""

from toolwire.runtime.tool import Annotations, Arguments, Tool, ToolContext, ToolError
from toolwire.runtime.tools.schema import object_schema, string_list_schema, string_schema

ANSWER_TIMEOUT = 24 * 60 * 60.0


def ask_user_tools() -> list[Tool]:
    async def run(arguments: Arguments, calling: ToolContext) -> str:
        answer = await calling.approver.answer(arguments["question"], tuple(arguments.get("choices", ())))
        if answer is None:
            raise ToolError("nobody is there to answer: decide without, or say what is missing", "no_answer")
        return answer

    tool = Tool(
        name="ask_user",
        run=run,
        description="Asks the person whom you work for, who alone knows what they want. For decisions that are theirs.",
        parameters=object_schema(
            ("question",),
            question=string_schema("The question, so that it can be understood alone."),
            choices=string_list_schema("Answers to choose from, if there are few."),
        ),
        annotations=Annotations(read_only=True),
        locus="human",
        source="built-in",
        timeout=ANSWER_TIMEOUT,
        retries=0,
    )
    return [tool]

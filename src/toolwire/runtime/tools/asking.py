"""`ask_user`: a question to the person whom the run is for."""

from toolwire.runtime.toolset import Annotations, Arguments, Calling, Tool, ToolFault

from .schema import a_string, an_object, strings

PATIENCE = 24 * 60 * 60.0


def asking_tools() -> list[Tool]:
    async def run(arguments: Arguments, calling: Calling) -> str:
        answer = await calling.person.answer(arguments["question"], tuple(arguments.get("choices", ())))
        if answer is None:
            raise ToolFault("nobody is there to answer: decide without, or say what is missing", "no_answer")
        return answer

    tool = Tool(
        name="ask_user",
        run=run,
        description="Asks the person whom you work for, who alone knows what they want. For decisions that are theirs.",
        parameters=an_object(
            ("question",),
            question=a_string("The question, so that it can be understood alone."),
            choices=strings("Answers to choose from, if there are few."),
        ),
        annotations=Annotations(read_only=True),
        locus="human",
        source="built-in",
        timeout=PATIENCE,
        retries=0,
    )
    return [tool]

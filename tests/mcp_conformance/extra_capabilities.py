"""Server capabilities that the suite requires and toolwire does not offer.

These are prompts, resources, completion, logging, sampling and roots. They are added to the SDK server below ours, so
that the remaining scenarios can run.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged

Context = ServerRequestContext[Any, Any]
Result = types.CallToolResult | types.InputRequiredResult
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="


def text_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)])


def question(message: str, field: str) -> types.ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def completion(text: str, limit: int) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=limit))


def input_tool(**requests: types.InputRequest) -> Callable[[Context, types.CallToolRequestParams], Awaitable[Result]]:
    """Define a tool that requests all inputs at once."""

    async def run(context: Context, params: types.CallToolRequestParams) -> Result:
        responses = params.input_responses or {}
        if not all(key in responses for key in requests):
            return types.InputRequiredResult(input_requests=requests, request_state="asked")
        return text_result("\n".join(responses[key].model_dump_json(by_alias=True) for key in requests))

    return run


async def logging(context: Context, params: types.CallToolRequestParams) -> Result:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message("info", text, related_request_id=context.request_id)
        await asyncio.sleep(0.05)
    return text_result("logged")


async def sampling(context: Context, params: types.CallToolRequestParams) -> Result:
    text = str((params.arguments or {}).get("prompt", ""))
    request = completion(text, 100)
    answer = await context.session.send_request(request, types.CreateMessageResult)
    return text_result(f"LLM response: {answer.content}")


async def capable(context: Context, params: types.CallToolRequestParams) -> Result:
    has = context.session.client_capabilities or types.ClientCapabilities()
    requests: dict[str, types.InputRequest] = {}
    if has.elicitation is not None:
        requests["user_name"] = question("What is your name?", "name")
    if has.sampling is not None:
        requests["greeting"] = completion("Generate a greeting", 50)
    return types.InputRequiredResult(input_requests=requests, request_state="asked")


async def missing(context: Context, params: types.CallToolRequestParams) -> Result:
    has = context.session.client_capabilities
    if has is None or has.sampling is None:
        code = types.MISSING_REQUIRED_CLIENT_CAPABILITY
        raise MCPError(code, "sampling is required", {"requiredCapabilities": {"sampling": {}}})
    return text_result("it is there")


TOOLS: dict[str, Callable[[Context, types.CallToolRequestParams], Awaitable[Result]]] = {
    "test_tool_with_logging": logging,
    "test_logging_tool": logging,
    "test_sampling": sampling,
    "test_missing_capability": missing,
    "test_input_required_result_capabilities": capable,
    "test_input_required_result_sampling": input_tool(
        capital_question=completion("What is the capital of France?", 100)
    ),
    "test_input_required_result_list_roots": input_tool(client_roots=types.ListRootsRequest()),
    "test_input_required_result_multiple_inputs": input_tool(
        user_name=question("What is your name?", "name"),
        greeting=completion("Generate a greeting", 50),
        client_roots=types.ListRootsRequest(),
    ),
}

RESOURCES: dict[str, types.TextResourceContents | types.BlobResourceContents] = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text", mime_type="text/plain", text="This is the content of the static text resource."
    ),
    "test://static-binary": types.BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PNG),
    "test://watched-resource": types.TextResourceContents(
        uri="test://watched-resource", mime_type="text/plain", text="Watched resource content"
    ),
}
_TEMPLATE = re.compile(r"test://template/([^/]+)/data")


async def list_resources(context: Context, params: types.PaginatedRequestParams) -> types.ListResourcesResult:
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri=uri, name=uri, mime_type=resource.mime_type) for uri, resource in RESOURCES.items()
        ]
    )


async def list_templates(context: Context, params: types.PaginatedRequestParams) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(uri_template="test://template/{id}/data", name="template")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    if (resource := RESOURCES.get(uri)) is not None:
        return types.ReadResourceResult(contents=[resource])
    if (match := _TEMPLATE.fullmatch(uri)) is not None:
        text = json.dumps({"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"})
        resource = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[resource])
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})


async def nothing(context: Context, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


async def list_prompts(context: Context, params: types.PaginatedRequestParams) -> types.ListPromptsResult:
    prompts = [
        types.Prompt(
            name=name,
            description=f"The suite's {name}",
            arguments=[types.PromptArgument(name=item, required=True) for item in arguments],
        )
        for name, arguments in PROMPTS.items()
    ]
    return types.ListPromptsResult(prompts=prompts)


def messages(*contents: types.ContentBlock) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=item) for item in contents])


async def prompt(
    context: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    responses = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return messages(types.TextContent(text="This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            text = f"Prompt with arguments: arg1='{responses.get('arg1')}', arg2='{responses.get('arg2')}'"
            return messages(types.TextContent(text=text))
        case "test_prompt_with_embedded_resource":
            text = "Embedded resource content for testing."
            resource = types.TextResourceContents(uri=responses["resourceUri"], mime_type="text/plain", text=text)
            return messages(types.EmbeddedResource(resource=resource), types.TextContent(text="Please process it."))
        case "test_prompt_with_image":
            return messages(types.ImageContent(data=PNG, mime_type="image/png"), types.TextContent(text="Look."))
        case "test_input_required_result_prompt":
            answer = (params.input_responses or {}).get("user_context")
            if answer is None:
                elicitation = question("What context should the prompt use?", "context")
                return types.InputRequiredResult(input_requests={"user_context": elicitation})
            return messages(types.TextContent(text=answer.model_dump_json()))
        case _:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")


async def complete(context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))


def add_capabilities(server: Server[Any], bus: InMemorySubscriptionBus) -> None:
    entry = server.get_request_handler("tools/call")
    assert entry is not None
    ours = entry.handler

    async def call(context: Context, params: types.CallToolRequestParams) -> Any:
        if params.name == "test_trigger_prompt_change":
            await bus.publish(PromptsListChanged())
            return text_result("changed")
        return await TOOLS.get(params.name, ours)(context, params)

    server.add_request_handler("tools/call", types.CallToolRequestParams, call)
    server.add_request_handler("resources/list", types.PaginatedRequestParams, list_resources)
    server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, list_templates)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, read)
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, nothing)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, nothing)
    server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, prompt)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, nothing)

"""The API reference, written from signatures and docstrings: `python -m tests.documentation.api_page`.

The sources are parsed, not imported, so that the page is the same on every Python.
"""

import ast
import re

import toolwire
from tests.documentation.module_index import SOURCES
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "api.md"
WIDTH = 100
HEAD = """# API reference

Everything that `import toolwire as tw` offers, and the names in [its modules](#modules) that the guides use. Names
that are not on this page may change without notice.
`python -m tests.documentation.api_page` writes this page.
"""
SECTIONS = {
    "Translation": ("translate", "translate_stream", "Translation", "Loss", "check", "model_info"),
    "Tool-call cycle": (
        "format_tools",
        "parse_tool_calls",
        "format_tool_result",
        "format_tool_results",
        "continue_request",
    ),
    "Agents": (),  # the rest
    "Errors": ("ToolwireError", "DecodeError", "LossyTranslationError", "RunFailed", "Denied", "ToolError"),
}
MODULES = {
    "testing": ("ScriptedModel", "RecordedModel", "Turn", "call", "respond", "answer", "fail"),
    "gateway.config": ("read_config", "parse_config"),
    "codec.models.info": ("ModelInfo", "Prices"),
    "codec.envelope": ("EnvelopeKey",),
    "canonical.content": ("ToolResult",),
    "canonical.computer": ("Click", "Navigate", "ReadText", "Type"),
    "runtime.tool": ("ToolCatalog",),
    "runtime.calls.approval": ("NoApprover",),
    "runtime.tools": ("built_in_tools",),
    "runtime.tools.web_search": ("JsonSearch", "searxng"),
    "runtime.tools.browser": ("BrowserSettings", "NetworkPolicy", "open_session"),
    "runtime.mcp.toolset": ("build_toolsets",),
    "runtime.sandbox.code.tool": ("CodeSandbox",),
    "runtime.search.deferred_tools": ("DeferredTools", "native_search"),
}
"""Names for special uses, by module."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_ARGUMENT = re.compile(r"^ {4}(\w+): ")


def sections() -> dict[str, list[str]]:
    """Return the public names by section."""
    named = {name for names in SECTIONS.values() for name in names}
    rest = [name for name in toolwire.__all__ if name not in named]
    return {title: list(names) or rest for title, names in SECTIONS.items()}


def find_definition(name: str, module: str) -> _Function | ast.ClassDef | None:
    """Return the syntax tree of a public name; None for an alias of types.

    It is the last definition, after those for overloads, but with their arguments.
    """
    tree = parse_module(find_module(name, module))
    found = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name
    ]
    if not found:
        return None
    definition = found[-1]
    if isinstance(definition, ast.FunctionDef) and len(found) > 1:
        overload = found[-2]
        assert isinstance(overload, ast.FunctionDef)
        definition.args, definition.returns = overload.args, overload.returns
    return definition


def find_module(name: str, module: str) -> str:
    """Return the module that defines a name, which `module` may only import."""
    for node in ast.walk(parse_module(module)):
        if isinstance(node, ast.ImportFrom) and name in (alias.name for alias in node.names):
            return find_module(name, str(node.module).removeprefix("toolwire."))
    return module


def parse_module(module: str) -> ast.Module:
    """Return the syntax tree of a module, named without the package."""
    path = SOURCES / (module.replace(".", "/") + ".py")
    if not path.exists():
        path = path.with_suffix("") / "__init__.py"
    return ast.parse(path.read_text(encoding="utf-8"))


def render_alias(name: str, module: str) -> list[str]:
    """Render an alias of types with the docstring below it."""
    body = parse_module(module).body
    index, value = next(
        (index, part.value)
        for index, part in enumerate(body)
        if (isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == name)
        or (isinstance(part, ast.AnnAssign) and ast.unparse(part.target) == name)
    )
    docstring = body[index + 1]
    assert value is not None
    assert isinstance(docstring, ast.Expr)
    assert isinstance(docstring.value, ast.Constant)
    shown = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ast.unparse(value)
    return ["```text", f"{name} = {shown}", "```", "", " ".join(str(docstring.value.value).split()), ""]


def render_signature(name: str, arguments: ast.arguments, returns: ast.expr | None) -> str:
    """Render a signature, with a line for each parameter if it is long; `self` is left out."""
    parameters = render_parameters(arguments)
    end = "" if returns is None or ast.unparse(returns) == "None" else f" -> {ast.unparse(returns)}"
    line = f"{name}({', '.join(parameters)}){end}"
    return line if len(line) <= WIDTH else "\n".join([f"{name}(", *(f"    {part}," for part in parameters), f"){end}"])


def render_parameters(arguments: ast.arguments) -> list[str]:
    """Render each parameter."""
    plain = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    rendered = [
        render_parameter(argument, default)
        for argument, default in zip(plain, defaults, strict=True)
        if argument.arg not in ("self", "cls")
    ]
    if arguments.vararg is not None:
        rendered.append(f"*{render_parameter(arguments.vararg)}")
    elif arguments.kwonlyargs:
        rendered.append("*")
    rendered += map(render_parameter, arguments.kwonlyargs, arguments.kw_defaults)
    return rendered if arguments.kwarg is None else [*rendered, f"**{render_parameter(arguments.kwarg)}"]


def render_parameter(argument: ast.arg, default: ast.expr | None = None) -> str:
    """Render a parameter with its type and its default."""
    annotated = argument.arg + ("" if argument.annotation is None else f": {ast.unparse(argument.annotation)}")
    return annotated if default is None else f"{annotated} = {ast.unparse(default)}"


def render_docstring(node: _Function | ast.ClassDef) -> list[str]:
    """Render a docstring as Markdown, its `Args` as a list."""
    lines: list[str] = []
    for line in (ast.get_docstring(node) or "").splitlines():
        if line == "Args:":
            continue
        if (match := _ARGUMENT.match(line)) is not None:
            lines.append(f"* `{match[1]}`: {line[match.end() :]}")
        else:
            lines.append(line.replace("        ", "  ", 1) if line.startswith("        ") else line)
    return lines


def render_class(node: ast.ClassDef) -> list[str]:
    """Render a class: how it is made, its fields, and its public methods and properties."""
    functions = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    made = next((part for part in functions if part.name == "__init__"), None)
    heading = render_signature(node.name, made.args, None) if made is not None else f"class {node.name}"
    lines = ["```text", heading, "```", "", *render_docstring(node), ""]
    for field, comment in _fields(node):
        lines.append(f"* `{field}`" + (f": {comment}" if comment else ""))
    methods = {part.name: part for part in functions if not part.name.startswith("_")}
    for name, method in methods.items():
        summary = (ast.get_docstring(method) or "").split("\n\n", 1)[0].replace("\n", " ")
        is_property = any("property" in ast.unparse(decorator) for decorator in method.decorator_list)
        shown = f"{name}: {ast.unparse(method.returns)}" if is_property and method.returns else f"{name}()"
        lines.append(f"* `{shown}`: {summary}")
    return [*lines, ""]


def _fields(node: ast.ClassDef) -> list[tuple[str, str]]:
    """Return the annotated public fields of a class, with the docstring below each."""
    found = []
    for part, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and not part.target.id.startswith("_"):
            value = after.value if isinstance(after, ast.Expr) else None
            is_comment = isinstance(value, ast.Constant) and isinstance(value.value, str)
            comment = str(value.value) if is_comment and isinstance(value, ast.Constant) else ""
            default = "" if part.value is None else f" = {ast.unparse(part.value)}"
            found.append((f"{part.target.id}: {ast.unparse(part.annotation)}{default}", " ".join(comment.split())))
    return found


def render_name(name: str, module: str) -> list[str]:
    """Render a function, a class or an alias of types."""
    match find_definition(name, module):
        case None:
            return render_alias(name, module)
        case ast.ClassDef() as node:
            return render_class(node)
        case node:
            signature = render_signature(name, node.args, node.returns)
            return ["```text", signature, "```", "", *render_docstring(node), ""]


def render_page() -> str:
    """Render the page."""
    lines = [HEAD]
    for title, names in sections().items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += [f"### `tw.{name}`", "", *render_name(name, toolwire._MODULES[name])]
    lines += ["## Modules", "", "Import these from their modules: `from toolwire.testing import ScriptedModel`.", ""]
    for module, exported in MODULES.items():
        for name in exported:
            lines += [f"### `toolwire.{module}.{name}`", "", *render_name(name, module)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")

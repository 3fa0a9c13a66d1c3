"""The command line interface: one module per command."""

import gc

import click

from toolwire.cli.groups import MainGroup

SECTIONS = {
    "Configuration": ("init", "config"),
    "Gateway": ("serve", "launch", "models", "keys", "usage", "doctor", "journal"),
    "Agents": ("ask", "runs", "work", "mcp"),
    "Translation": ("translate", "check", "protocols", "hosts"),
    "Development": ("simulate", "completion"),
}
COMMANDS = tuple(name for names in SECTIONS.values() for name in names)


@click.group(
    cls=MainGroup,
    sections=SECTIONS,
    epilog="`toolwire COMMAND --help` shows the options of a command, with examples. Exit codes: 0 success, 1 problems "
    "found, 2 bad input, 3 refused because something would be lost, or waiting for an approval, 130 Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="toolwire", message="toolwire %(version)s")
def main() -> None:
    """Any coding agent on any model: a gateway between tool-calling protocols that reports what it can't translate.

    \b
    Examples:
      toolwire serve
      toolwire launch claude --model openai/gpt-5.5
      toolwire ask "what does this project do?"
      toolwire translate --from anthropic --to openai-chat < request.json
    """
    # Start-up allocates many objects and frees hardly any; garbage collection took a fifth of the time.
    gc.set_threshold(20_000, 5, 5)

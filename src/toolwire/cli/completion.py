"""`toolwire completion`: print the script that completes commands, options and values in a shell."""

import click
from click.shell_completion import get_completion_class

from toolwire.cli.inputs import BadInput, NameChoice

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_TOOLWIRE_COMPLETE"


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=NameChoice(SHELLS), metavar="SHELL")
def command(shell: str) -> None:
    """Print the script that completes toolwire's commands, options and values in SHELL: bash, zsh or fish.

    Values are completed too: protocols, agents, hosts, providers, and the ids of runs and recorded exchanges. In zsh,
    the line `fpath+=~/.zfunc` must stand before `compinit` in ~/.zshrc.

    \b
    Examples:
      toolwire completion bash >> ~/.bash_completion
      toolwire completion zsh > ~/.zfunc/_toolwire
      toolwire completion fish > ~/.config/fish/completions/toolwire.fish
    """
    completer = get_completion_class(shell)
    if completer is None:
        raise BadInput(f"no completion for {shell}")
    click.echo(completer(click.get_current_context().find_root().command, {}, "toolwire", _VARIABLE).source())

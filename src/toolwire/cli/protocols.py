"""`toolwire protocols`: the support matrix."""

import click

# Both directions, or it is not support.
SURFACES = {
    "requests": ("decode_request", "encode_request"),
    "responses": ("decode_response", "encode_response"),
    "streams": ("stream_decoder", "stream_encoder"),
    "errors": ("decode_error", "encode_error"),
}


@click.command("protocols", short_help="List the protocols and what is supported of each.")
def command() -> None:
    """List the protocols and what can be translated of each, to and from every other.

    \b
    Example:
      toolwire protocols
    """
    from toolwire.protocols import PROTOCOLS

    width = max(len(name) for name in PROTOCOLS) + 2
    click.echo("protocol".ljust(width) + "".join(surface.ljust(11) for surface in SURFACES).rstrip())
    for name, codec in PROTOCOLS.items():
        marks = (
            "yes" if all(getattr(codec, function, None) for function in functions) else "-"
            for functions in SURFACES.values()
        )
        click.echo(name.ljust(width) + "".join(mark.ljust(11) for mark in marks).rstrip())

"""Who we say we are, to servers and to clients."""

from importlib.metadata import version

NAME = "toolwire"
# Not `toolwire.__version__`: the package's own module stands above the runtime.
VERSION = version(NAME)

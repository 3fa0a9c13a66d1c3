"""Who we say we are, to servers and to clients."""

from importlib.metadata import version

IMPLEMENTATION_NAME = "toolwire"
# Not `toolwire.__version__`: the package's own module stands above the runtime.
IMPLEMENTATION_VERSION = version(IMPLEMENTATION_NAME)

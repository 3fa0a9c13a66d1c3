"""Name and version that toolwire reports to MCP servers and clients."""

from importlib.metadata import version

IMPLEMENTATION_NAME = "toolwire"
# Not `toolwire.__version__`: the import contracts place the top-level module above the runtime.
IMPLEMENTATION_VERSION = version(IMPLEMENTATION_NAME)

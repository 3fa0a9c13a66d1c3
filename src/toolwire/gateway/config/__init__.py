"""The configuration of the gateway: the sections of `toolwire.toml`, and reading, merging and trusting its files."""

from toolwire.gateway.config.errors import ConfigError
from toolwire.gateway.config.loading import LoadedConfig, load_config
from toolwire.gateway.config.paths import (
    PROJECT_FILE,
    journal_location,
    journal_path,
    runs_location,
    state_directory,
    user_file,
)
from toolwire.gateway.config.providers import build_providers, build_redactor, configured_secrets
from toolwire.gateway.config.reading import override_journal, override_server, parse_config, read_config
from toolwire.gateway.config.sections import (
    BackendSection,
    BrowserSection,
    CompactionSection,
    Config,
    ConsoleSection,
    JournalSection,
    KeyCommandSection,
    KeySection,
    LimitsSection,
    PolicySection,
    ProviderSection,
    RouteSection,
    SearchSection,
    ServerSection,
    SimulatorSection,
    StateSection,
    ToolsSection,
)

__all__ = [
    "PROJECT_FILE",
    "BackendSection",
    "BrowserSection",
    "CompactionSection",
    "Config",
    "ConfigError",
    "ConsoleSection",
    "JournalSection",
    "KeyCommandSection",
    "KeySection",
    "LimitsSection",
    "LoadedConfig",
    "PolicySection",
    "ProviderSection",
    "RouteSection",
    "SearchSection",
    "ServerSection",
    "SimulatorSection",
    "StateSection",
    "ToolsSection",
    "build_providers",
    "build_redactor",
    "configured_secrets",
    "journal_location",
    "journal_path",
    "load_config",
    "override_journal",
    "override_server",
    "parse_config",
    "read_config",
    "runs_location",
    "state_directory",
    "user_file",
]

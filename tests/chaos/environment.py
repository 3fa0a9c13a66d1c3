"""The environment variables that tell the workers' agent where everything is."""

EFFECTS_VARIABLE = "CHAOS_EFFECTS"
CONFIG_VARIABLE = "CHAOS_AGENT_CONFIG"
STORE_VARIABLE = "CHAOS_STORE"

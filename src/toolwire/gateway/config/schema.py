"""The JSON Schema of `toolwire.toml`, which `python -m tests.documentation.config_schema` writes."""

from importlib.resources import files

SCHEMA_FILE = "schema.json"


def read_schema() -> str:
    """Return the text of the schema."""
    return files(__package__).joinpath(SCHEMA_FILE).read_text(encoding="utf-8")

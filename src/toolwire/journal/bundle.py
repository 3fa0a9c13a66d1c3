"""Exchanges in one file, for a bug report."""

import io
import json
import platform
import zipfile
from collections.abc import Sequence

from msgspec.structs import replace

from toolwire.journal.records import Record, body_content, record_as_json
from toolwire.journal.redaction import Redactor

_README = """\
Exchanges recorded by toolwire, for a bug report. Known keys, and what looks like one, were taken out; everything else
is as it was: read it before you pass it on. `toolwire journal replay` sends such an exchange again.

    ID/record.json      what is known of the exchange, its losses included
    ID/request.*        what the client sent
    ID/translated.*     what was made of it for the provider
    ID/response.*       what the client was answered

The last three are there if bodies were recorded.
"""


def build_bundle(records: Sequence[Record], redactor: Redactor, version: str) -> bytes:
    """A zip file. Whose key it was is left out, and secrets that became known since they were recorded, too."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.txt", _README)
        environment = {"toolwire": version, "python": platform.python_version(), "system": platform.system()}
        archive.writestr("environment.json", _format_json(environment))
        for record in map(redactor.redact_record, records):
            bodies = {} if record.bodies is None else record.bodies.by_name
            archive.writestr(
                f"{record.id}/record.json", _format_json(record_as_json(replace(record, tenant="", bodies=None)))
            )
            for name, data in bodies.items():
                if data:
                    kind = "txt" if isinstance(body_content(data), str) else "json"
                    archive.writestr(f"{record.id}/{name}.{kind}", data)
    return file.getvalue()


def _format_json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()

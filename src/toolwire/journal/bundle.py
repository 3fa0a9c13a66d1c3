"""Export recorded exchanges as a zip file for a bug report."""

import io
import json
import platform
import zipfile
from collections.abc import Sequence

from msgspec.structs import replace

from toolwire.journal.records import Record, body_content, record_as_json
from toolwire.journal.redaction import Redactor

_README = """\
Exchanges recorded by toolwire, for a bug report. Known keys, and text that looks like a key, were removed. Everything
else is unchanged: review it before you share it. `toolwire journal replay` sends such an exchange again.

    ID/record.json      metadata of the exchange, including losses
    ID/request.*        the client's request
    ID/translated.*     the translated request, as sent to the provider
    ID/response.*       the response to the client

The last three exist only if bodies were recorded.
"""


def build_bundle(records: Sequence[Record], redactor: Redactor, version: str) -> bytes:
    """Build the zip file, without tenants and without secrets, including those known only since the recording."""
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
                    extension = "txt" if isinstance(body_content(data), str) else "json"
                    archive.writestr(f"{record.id}/{name}.{extension}", data)
    return file.getvalue()


def _format_json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()

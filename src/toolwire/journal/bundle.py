"""Exchanges in one file, for a bug report."""

import io
import json
import platform
import zipfile
from collections.abc import Sequence

from msgspec.structs import replace

from .records import Record, content, readable
from .secrets import Redactor

_README = """\
Exchanges recorded by toolwire, for a bug report. Known keys, and what looks like one, were taken out; everything else
is as it was: read it before you pass it on. `toolwire journal replay` sends such an exchange again.

    ID/record.json      what is known of the exchange, its losses included
    ID/request.*        what the client sent
    ID/translated.*     what was made of it for the provider
    ID/response.*       what the client was answered

The last three are there if bodies were recorded.
"""


def bundle(records: Sequence[Record], redactor: Redactor, version: str) -> bytes:
    """A zip file. Whose key it was is left out, and secrets that became known since they were recorded, too."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.txt", _README)
        environment = {"toolwire": version, "python": platform.python_version(), "system": platform.system()}
        archive.writestr("environment.json", _json(environment))
        for record in map(redactor.record, records):
            bodies = {} if record.bodies is None else record.bodies.parts
            archive.writestr(f"{record.id}/record.json", _json(readable(replace(record, tenant="", bodies=None))))
            for name, data in bodies.items():
                if data:
                    kind = "txt" if isinstance(content(data), str) else "json"
                    archive.writestr(f"{record.id}/{name}.{kind}", data)
    return file.getvalue()


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()

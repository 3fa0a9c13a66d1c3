"""Adapting a decoded request to the protocol that it is translated to."""

from toolwire.canonical.request import Request
from toolwire.codec.encoding.fallbacks import apply_setting_changes
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.interface import Codec
from toolwire.codec.losses import LossReport
from toolwire.translation.stages.family import isolate_foreign_extras


def adapt_request(request: Request, reader: Codec, writer: Codec, host: HostProfile, report: LossReport) -> Request:
    """Return the request without client metadata, with extras of the writer and the last settings of the conversation.

    The losses that this causes are added to the report, relative to `request`. A request to the same protocol only
    loses its billing header, and only at known hosts of other vendors.
    """
    if reader is writer and host.pass_through:
        return request
    request = reader.remove_client_metadata(request, report)
    if reader is writer:
        return request
    return apply_setting_changes(isolate_foreign_extras(request, reader, writer), reader, writer)

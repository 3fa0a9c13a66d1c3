"""Decisions shared by the encoders of one Interactions request or response."""

from msgspec import Raw

from toolwire.codec.encoding.plan import EncodingPlan, IdAndNameRules
from toolwire.codec.interface import Target
from toolwire.codec.losses import LossReport


class StepPlan(EncodingPlan):
    """An encoding plan for steps."""

    def __init__(
        self,
        rules: IdAndNameRules,
        report: LossReport,
        target: Target,
        *,
        same_protocol: bool,
        for_client: bool = False,
        from_gemini: bool = False,
    ) -> None:
        super().__init__(rules, report, target, same_protocol=same_protocol, for_client=for_client)
        # Tool names by call id, for results.
        self.calls: dict[str, str] = {}
        # The source is `generateContent`, so unsigned thoughts are Google's as well.
        self.from_gemini = from_gemini
        # Coordinates for `google_maps` tools, which `generateContent` keeps in `toolConfig`.
        self.map_location: dict[str, Raw] = {}

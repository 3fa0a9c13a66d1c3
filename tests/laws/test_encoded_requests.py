"""Everything that the encoders emit passes `check`, and the strict simulator of every host."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import toolwire as tw
from tests.host_matrix.cells import models_of
from tests.support.samples import recorded_bodies
from toolwire.codec.hosts.profile import HostProfile
from toolwire.codec.hosts.registry import all_profiles
from toolwire.upstream.simulator.hosts.host import CHECKED_PROTOCOLS, SimulatedHost
from toolwire.upstream.simulator.hosts.refusals import HostRefusal

HOSTS = [profile for profile in all_profiles() if not profile.pass_through and profile.protocol in CHECKED_PROTOCOLS]
_SAMPLE = 1 if recorded_bodies.WHOLE_CORPUS else 8


def _encode(source: str, target: str, **options: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the source and the encoded body of each recorded request that can be encoded."""
    options = recorded_bodies.address_options(source, "request") | options
    bodies = recorded_bodies.sample_for_target(recorded_bodies.requests(source), target)
    for index, (name, body) in enumerate(bodies.items()):
        if "host" in options and "#" in name and index % _SAMPLE:
            continue
        try:
            yield name, body, tw.translate(body, source, target, **options).value
        except tw.LossyTranslationError:
            continue


def _errors(body: Any, protocol: str) -> list[tuple[str, str]]:
    return [(finding.rule, finding.path) for finding in tw.check(body, protocol) if finding.level == "error"]


@pytest.mark.parametrize("target", recorded_bodies.PROTOCOL_NAMES)
@pytest.mark.parametrize("source", recorded_bodies.PROTOCOL_NAMES)
def test_encoded_requests_have_no_error(source: str, target: str) -> None:
    """In the same protocol, a request is passed on with the errors that the client made, and no other."""
    wrong, count = {}, 0
    for name, body, encoded in _encode(source, target):
        count += 1
        errors = _errors(encoded, target)
        if errors and not (source == target and set(errors) <= set(_errors(body, source))):
            wrong[name] = errors
    assert wrong == {}
    assert count


@pytest.mark.parametrize("profile", HOSTS, ids=lambda profile: f"{profile.name}-{profile.protocol}")
def test_hosts_accept_encoded_requests_of_other_protocols(profile: HostProfile) -> None:
    host, refused, count = SimulatedHost(profile), {}, 0
    for source in recorded_bodies.PROTOCOL_NAMES:
        if source == profile.protocol:
            continue
        for name, _, encoded in _encode(source, profile.protocol, host=profile.name, model=models_of(profile)[0]):
            count += 1
            try:
                host.check_request(msgspec.json.encode(encoded))
            except HostRefusal as refusal:
                refused[f"{source} {name}"] = str(refusal)
    assert refused == {}
    assert count

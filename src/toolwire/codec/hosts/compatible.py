"""Unknown servers that are assumed to accept their entire protocol."""

from toolwire.codec.hosts.profile import HostProfile

COMPATIBLE = HostProfile(name="compatible", title="Servers that accept the entire protocol", pass_through=True)
PROFILE = COMPATIBLE
PROFILES = (PROFILE,)

"""References inside one schema, resolved within it: nothing is ever fetched."""

import re
from typing import Any

from .changes import Site

_PERCENT = re.compile("%([0-9A-Fa-f]{2})")
_UNSAFE = re.compile("[^A-Za-z0-9_.-]+")
DEFINITIONS = ("$defs", "definitions")


class References:
    """`names`: what definitions at the root are called, by where they stand in the source."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._anchors: dict[str, Site] | None = None
        self.names: dict[str, str] = {}
        self._taken: set[str] = set()
        self.used: set[str] = set()

    def resolve(self, reference: Any) -> Site | None:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        pointer = _PERCENT.sub(lambda match: chr(int(match[1], 16)), reference[1:])
        if pointer and not pointer.startswith("/"):
            return self._anchored(pointer)
        site = Site(self._tree, "")
        for step in pointer.split("/")[1:]:
            key: Any = _plain(step)
            if isinstance(site.value, list):
                key = int(key) if key.isdecimal() and len(key) < 9 and int(key) < len(site.value) else None
            elif not isinstance(site.value, dict) or key not in site.value:
                key = None
            if key is None:
                return None
            site = site.at(key)
        self.used.add(site.path)
        return site

    def name(self, site: Site) -> str:
        """The name of a definition at the root for what stands elsewhere."""
        if (known := self.names.get(site.path)) is None:
            *parents, last = site.path.split("/")[1:]
            direct = len(parents) == 1 and parents[0] in DEFINITIONS
            known = _plain(last) if direct else _UNSAFE.sub("_", "_".join([*parents, last]))
            plain, count = known, 1
            while known in self._taken:
                count += 1
                known = f"{plain}_{count}"
            self._taken.add(known)
            self.names[site.path] = known
        return known

    def _anchored(self, name: str) -> Site | None:
        if self._anchors is None:
            self._anchors = {}
            waiting = [Site(self._tree, "")]
            while waiting:
                site = waiting.pop()
                if isinstance(site.value, dict):
                    if isinstance(anchor := site.value.get("$anchor"), str):
                        self._anchors.setdefault(anchor, site)
                    waiting += [site.at(key) for key in site.value]
                elif isinstance(site.value, list):
                    waiting += [site.at(index) for index in range(len(site.value))]
        if (found := self._anchors.get(name)) is not None:
            self.used.add(found.path)
        return found


def _plain(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")

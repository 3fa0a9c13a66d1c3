"""A fixed catalog of 5,000 tools, with a question for each.

The question is one that a user who needs the tool and never saw its description would ask. Both are built from one
vocabulary of services, objects and actions; names, descriptions and questions use different synonyms.
"""

import random
from collections.abc import Iterator

from msgspec import Struct

from toolwire.runtime.search.index import IndexedTool

_SERVICES = """
Acmeforge code hosting|Bramble bug tracking|Cobaltdesk customer support|Driftmail email|Ember chat|Fernbase database|
Glimmer photo library|Harborpay payments|Inkwell notes|Juniper calendar|Kestrel monitoring|Lumen analytics|
Mossdrive file storage|Nimbus cloud servers|Orchid recruiting|Pebble invoicing|Quartz inventory|Raven surveys|
Sable video calls|Thistle e-commerce|Umbra identity|Vesper music|Willow travel|Xenon messaging queue|Yarrow payroll|
Zephyr weather stations|Aster advertising|Birch accounting|Cinder home automation|Dune maps|Elm translation|
Flint continuous integration|Gale shipping|Heron sales pipeline|Iris document signing|Jade phone system|
Krill newsletters|Larch knowledge base|Marlin fleet tracking|Nettle lab results|Opal events|Pine project planning|
Quill publishing|Reed subscriptions|Slate dashboards|Teal backups|Ursa security scanning|Violet design files|
Wren podcasts|Yew contracts
"""
_THINGS = (
    ("invoice", "invoices", "bill", "a request for payment"),
    ("contact", "contacts", "address book entry", "somebody's details"),
    ("report", "reports", "summary report", "figures that were put together"),
    ("webhook", "webhooks", "webhook callback", "an address that is told of changes"),
    ("comment", "comments", "remark or comment", "what somebody wrote below something"),
    ("label", "labels", "tag or label", "a word that groups things"),
    ("attachment", "attachments", "attached file", "a file that goes along"),
    ("template", "templates", "reusable template", "a form to fill in"),
    ("schedule", "schedules", "timetable", "when something is to happen"),
    ("token", "tokens", "access token", "a key for programs"),
    ("permission", "permissions", "access permission", "who may do what"),
    ("workspace", "workspaces", "team workspace", "a place that a team has to itself"),
)
_DEEDS = (
    ("create", ("Creates", "Adds"), ("add", "make", "set up", "put in place")),
    ("delete", ("Deletes", "Removes"), ("remove", "get rid of", "erase", "throw away")),
    ("update", ("Updates", "Changes"), ("change", "edit", "modify", "correct")),
    ("get", ("Gets", "Reads"), ("fetch", "look at", "show me", "retrieve")),
    ("list", ("Lists", "Enumerates"), ("list", "give an overview of", "enumerate", "browse")),
    ("export", ("Exports", "Downloads"), ("download", "export", "save to disk", "extract")),
    ("archive", ("Archives", "Puts away"), ("archive", "shelve", "put in the archive", "stash")),
    ("share", ("Shares", "Publishes"), ("share with colleagues", "publish", "make public by sharing", "share out")),
    ("copy", ("Copies", "Duplicates"), ("duplicate", "clone", "make a copy of", "replicate")),
)
_STYLES = (
    "{service}_{deed}_{thing}",
    "{deed}{Thing}In{Service}",
    "{service}-{deed}-{thing}",
    "{service}.{thing}.{deed}",
)
_ABOUT = (
    "{Does} {thing} in {Service}, the {domain} service. {told}",
    "{Service} ({domain}): {does} {thing} by its id. {told}",
    "{told} {Does} {thing}; part of {Service} for {domain}.",
)
_ASKED = (
    "I need to {deed} {thing} in {place}",
    "{deed} {thing} on {place} please",
    "can you {deed} the {thing} we have in our {place}?",
    "how would I {deed} some {thing} with {place}",
)
_ARGUMENTS = ("id", "page_size", "dry_run", "owner", "note", "since", "format")


class Question(Struct, frozen=True):
    text: str
    tool: str


def catalog(size: int = 5_000) -> tuple[list[IndexedTool], list[Question]]:
    chance = random.Random(20_260_728)
    entries = list(_generate(chance))
    chance.shuffle(entries)
    return [entry for entry, _ in entries[:size]], [question for _, question in entries[:size]]


def _generate(chance: random.Random) -> Iterator[tuple[IndexedTool, Question]]:
    services = [line.strip().split(" ", 1) for line in _SERVICES.replace("\n", "").split("|")]
    for number, (service, domain) in enumerate(services):
        for singular, plural, synonym, description in _THINGS:
            for action, predicate, question in _DEEDS:
                name = _STYLES[number % len(_STYLES)].format(
                    service=service.lower(), Service=service, deed=action, thing=singular, Thing=singular.capitalize()
                )
                verb = chance.choice(predicate)
                about = chance.choice(_ABOUT).format(
                    Does=verb, does=verb.lower(), thing=_article(singular), Service=service, domain=domain,
                    told=description.capitalize() + ".",
                )  # fmt: skip
                text = chance.choice(_ASKED).format(
                    deed=chance.choice(question), thing=chance.choice((plural, singular, synonym)),
                    place=chance.choice((service, domain, f"{service} {domain}")),
                )  # fmt: skip
                yield IndexedTool(name, about, _parameters(chance, singular)), Question(text, name)


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _parameters(chance: random.Random, noun: str) -> dict[str, object]:
    names = [f"{noun}_id", *chance.sample(_ARGUMENTS, 3)]
    properties = {name: {"type": "string", "description": f"The {name.replace('_', ' ')} to use."} for name in names}
    return {"type": "object", "properties": properties, "required": names[:1]}

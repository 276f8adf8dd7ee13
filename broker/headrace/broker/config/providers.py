"""Values that stand in another file: `${file:PATH:KEY}` is what the properties file at PATH says of KEY (KIP-297).

Kafka's FileConfigProvider, and no other provider: it has to be switched on, as in Kafka, by `config.providers`. A secret
need then not stand in `server.properties`. Knows nothing of files: who calls hands in how one is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import PurePath

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.properties import parse_properties

PROVIDERS_KEY = "config.providers"
FILE_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
VARIABLE = re.compile(r"\$\{([^}:]*):([^}]*):([^}:]*)\}")
Read = Callable[[str], str]


def resolved(properties: Mapping[str, str], read: Read) -> dict[str, str]:
    """The properties with what the files say in the place of variables, without those that switch providers on.

    `read(path)` gives a file's text. Raises ConfigurationError, which never quotes what a file says; a variable of a provider
    that is not switched on is an ordinary text, as in Kafka.
    """
    paths = _allowed_paths(properties)
    texts: dict[str, Mapping[str, str]] = {}

    def value(key: str, found: re.Match[str]) -> str:
        name, path, wanted = found.groups()
        if name not in paths:
            return found.group()
        if path not in texts:
            texts[path] = _read(key, found.group(), path, paths[name], read)
        if wanted not in texts[path]:
            raise ConfigurationError(key, found.group(), f"a key that {path} has")
        return texts[path][wanted]

    return {
        key: VARIABLE.sub(partial(value, key), text)
        for key, text in properties.items()
        if not is_of_providers(key)
    }


def _allowed_paths(properties: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The folders and files that each provider may read, none for all. Raises ConfigurationError."""
    names = [name.strip() for name in properties.get(PROVIDERS_KEY, "").split(",") if name.strip()]
    allowed = {}
    for name in names:
        key = f"{PROVIDERS_KEY}.{name}.class"
        given = properties.get(key, "")
        if given != FILE_PROVIDER:
            raise ConfigurationError(key, given, FILE_PROVIDER)
        paths = properties.get(f"{PROVIDERS_KEY}.{name}.param.allowed.paths", "")
        allowed[name] = tuple(path.strip() for path in paths.split(",") if path.strip())
    return allowed


def _read(key: str, variable: str, path: str, allowed: tuple[str, ...], read: Read) -> Mapping[str, str]:
    place = PurePath(path)
    if allowed and (".." in place.parts or not any(place.is_relative_to(each) for each in allowed)):
        raise ConfigurationError(key, variable, f"a file below {', '.join(allowed)}")
    try:
        return parse_properties(read(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise ConfigurationError(key, variable, f"a file that can be read ({reason})") from None


def is_of_providers(key: str) -> bool:
    """Whether the key is about providers, and nothing that a broker runs with."""
    return key == PROVIDERS_KEY or key.startswith(f"{PROVIDERS_KEY}.")

"""A client's settings as somebody hands them in: a mapping, or a properties file such as Kafka's tools take.

No error quotes the file: what a line says may be a secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.properties import parse_properties


def client_settings(given: Mapping[str, str] | str | os.PathLike[str] | None) -> Mapping[str, str]:
    """The settings by name, none for None; raises ValueError with a sentence for a file that cannot be read."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return given
    try:
        return parse_properties(Path(given).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ConfigurationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no properties file in UTF-8"
        raise ValueError(f"{os.fspath(given)} cannot be read: {reason}") from None

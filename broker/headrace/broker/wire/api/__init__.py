"""Every API key that an Apache Kafka 3.9 broker speaks in ZooKeeper mode, one readable table a key."""

from importlib import import_module
from pkgutil import iter_modules

from headrace.broker.wire.schema import Api

_TABLES = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
APIS: dict[int, Api] = {table.API.key: table.API for table in _TABLES}

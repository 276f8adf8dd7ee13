"""Whether a renewed certificate may replace the one in use, as Kafka's SslFactory checks it (KIP-226, KIP-978). Pure."""

from __future__ import annotations

from cryptography import x509

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.sections import Tls
from headrace.broker.tls.names import rfc2253


def check_renewal(old: x509.Certificate, new: x509.Certificate, settings: Tls) -> None:
    """Raises ConfigurationError for another name, or for one that lacks alternative names of the old one's."""
    where = settings.ssl_keystore_location
    key, shown = (
        ("ssl.keystore.certificate.chain", "[hidden]") if where is None else ("ssl.keystore.location", where)
    )
    was, now = (rfc2253(each.subject.public_bytes()) for each in (old, new))
    if was != now and not settings.ssl_allow_dn_changes:
        allowed = f"a certificate for {was}, not for {now}, or ssl.allow.dn.changes=true"
        raise ConfigurationError(key, shown, allowed)
    lost = _alternative_names(old) - _alternative_names(new)
    if lost and not settings.ssl_allow_san_changes:
        allowed = f"a certificate for {', '.join(sorted(lost))}, too, or ssl.allow.san.changes=true"
        raise ConfigurationError(key, shown, allowed)


def _alternative_names(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(getattr(name, "value", name)) for name in found.value}

"""A certificate authority for the tests: real certificates, made in memory and written to files."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = datetime.timedelta(days=1)


class Pair(NamedTuple):
    """Paths of a certificate and its key."""

    cert: str
    key: str


class Authority:
    """Signs certificates; ``path`` holds its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        own = _builder(self._name, self._name, self._key.public_key()).add_extension(constraints, critical=True)
        self.path = str(folder / f"{name}.pem")
        Path(self.path).write_bytes(_pem(own.sign(self._key, hashes.SHA256())))

    def issue(
        self,
        file: str,
        *,
        common_name: str = "",
        hosts: Iterable[str] = (),
        uris: Iterable[str] = (),
        age: datetime.timedelta = DAY,
        lifetime: datetime.timedelta = 2 * DAY,
    ) -> Pair:
        """Make a certificate in ``file``.pem and its key in ``file``.key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.UniformResourceIdentifier(uri) for uri in uris] + _names(hosts)
        builder = _builder(_name(common_name or file), self._name, key.public_key(), age, lifetime)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _written(self._folder / file, builder.sign(self._key, hashes.SHA256()), key)

    def issue_server(self, file: str = "server") -> Pair:
        """Make a certificate for a server on this machine."""
        return self.issue(file, hosts=("localhost", "127.0.0.1", "::1"))


def self_signed(folder: Path, hosts: Iterable[str], age: datetime.timedelta = DAY) -> Pair:
    """Make a certificate that is its own authority, as `openssl req -x509` does, valid for two days."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name("alone"), _name("alone"), key.public_key(), age)
    builder = builder.add_extension(x509.SubjectAlternativeName(_names(hosts)), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return _written(folder / "alone", builder.sign(key, hashes.SHA256()), key)


def _written(path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pair = Pair(f"{path}.pem", f"{path}.key")
    Path(pair.cert).write_bytes(_pem(certificate))
    plain = serialization.NoEncryption()
    Path(pair.key).write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return pair


def _names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    age: datetime.timedelta = DAY,
    lifetime: datetime.timedelta = 2 * DAY,
) -> x509.CertificateBuilder:
    begin = datetime.datetime.now(datetime.timezone.utc) - age
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + lifetime)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)

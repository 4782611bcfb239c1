"""Certificates for tests: an authority of one's own, and what it signs, as PEM files."""

import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates. `path` is its own, for those who are to trust it."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._certificate = _builder(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(_pem(self._certificate.sign(self._key, hashes.SHA256())))

    def issue(self, file: str, *names: str, days: int = 1) -> "Issued":
        """Sign a certificate for names and addresses; `days` below 0: one that has expired. Overwrites the files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.SubjectAlternativeName([_alternative(name) for name in names or ("127.0.0.1",)])
        builder = _builder(_name(file), self._name, key, days).add_extension(subject, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        issued = Issued(self._folder / f"{file}.pem", self._folder / f"{file}.key", certificate.serial_number)
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        issued.certificate.write_bytes(_pem(certificate))
        return issued


class Issued:
    """A certificate and its key."""

    def __init__(self, certificate: Path, key: Path, serial: int) -> None:
        self.certificate = certificate
        self.key = key
        self.serial = serial


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: Any, days: int = 1) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=3))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)

"""When certificates expire, compared with the library ``cryptography``."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from certificates import Authority
from cryptography import x509
from secure_world import SecureWorld

from lmerge.service.security.cert_expiry import earliest_expiry, expiries_of
from lmerge.service.security.tls import TlsFiles

YEAR = datetime.timedelta(days=365)


def true_expiry(pem: bytes) -> float:
    return min(found.not_valid_after_utc.timestamp() for found in x509.load_pem_x509_certificates(pem))


@pytest.mark.parametrize("years", [1, 20, 40])  # from 2050 on a year has four digits
def test_the_expiry_is_that_of_the_certificate(tmp_path: Path, years: int) -> None:
    pair = Authority(tmp_path).issue("server", hosts=["localhost", "127.0.0.1"], lifetime=years * YEAR)
    pem = Path(pair.cert).read_bytes()
    assert earliest_expiry(pem) == true_expiry(pem)


def test_of_a_chain_the_first_to_expire_counts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    long, short = (authority.issue(str(years), lifetime=years * YEAR) for years in (9, 3))
    chain = b"".join(Path(path).read_bytes() for path in (long.cert, short.cert, authority.path))
    assert earliest_expiry(chain) == true_expiry(chain)


def test_what_is_no_certificate_has_no_expiry(tmp_path: Path) -> None:
    pem = Path(Authority(tmp_path).issue("server").cert).read_bytes()
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    assert earliest_expiry(b"no certificate") is None
    for cut in range(len(der) - 1):
        with pytest.raises(ValueError, match=r"."):
            earliest_expiry(ssl.DER_cert_to_PEM_cert(der[:cut]).encode())
    cut_pem = ssl.DER_cert_to_PEM_cert(der[:40]).encode()
    assert expiries_of({"cut": cut_pem, "whole": pem}) == {"whole": true_expiry(pem)}


def test_new_files_have_a_new_expiry(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", lifetime=2 * YEAR)
    files = TlsFiles(pair.cert, pair.key, authority.path)
    assert files.expiries == {
        "certificate": true_expiry(Path(pair.cert).read_bytes()),
        "client CA": true_expiry(Path(authority.path).read_bytes()),
    }
    authority.issue("server", lifetime=5 * YEAR)
    assert files.refresh()
    assert files.expiries["certificate"] == true_expiry(Path(pair.cert).read_bytes())


async def test_a_server_reports_when_its_certificates_expire(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, mtls=True) as world:
        families = world.server.metrics.collect()
        found = next(f for f in families if f.name == "lmerge_certificate_expiry_timestamp_seconds")
        assert {sample.labels["file"] for sample in found.samples} == {"certificate", "client CA"}

"""TLS contexts from files: what is refused at the start, and what happens when a file changes."""

import ssl

import pytest

from backends.network.tls import LOOK_SECONDS, TlsFiles, client_tls, own_server_tls, server_tls
from contracts.errors import ConfigurationError
from tests.certificates import Authority


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def files_of(issued, authority=None):
    return TlsFiles(issued.certificate, issued.key, None if authority is None else authority.path)


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str = "127.0.0.1") -> int:
    """Do a handshake in memory; return the serial number of the server's certificate. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (ours, theirs) * 3:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
    certificate = ours.getpeercert()
    assert certificate is not None
    return int(str(certificate["serialNumber"]), 16)


def test_a_new_certificate_is_used_for_the_next_handshake_and_not_looked_for_before_its_time(authority):
    first = authority.issue("server")
    clock = Clock()
    server = server_tls(files_of(first), clock=clock)
    client = client_tls(TlsFiles(authorities=authority.path))
    assert shake_hands(client, server) == first.serial
    second = authority.issue("server")
    for passed, expected in ((LOOK_SECONDS * 0.99, first), (LOOK_SECONDS, second), (LOOK_SECONDS * 2, second)):
        clock.now = 100.0 + passed
        assert shake_hands(client, server) == expected.serial
    assert (server.reloads, server.fault) == (1, "")


@pytest.mark.parametrize("broken", ["no PEM", "another's key", "gone"])
def test_a_file_that_cannot_be_used_leaves_the_last_good_one_in_use_and_says_why(authority, caplog, broken):
    first = authority.issue("server")
    server = server_tls(files_of(first))
    client = client_tls(TlsFiles(authorities=authority.path))
    if broken == "no PEM":
        first.certificate.write_text("-----BEGIN CERTIFICATE-----\nc2VjcmV0\n")
    elif broken == "another's key":
        first.key.write_bytes(authority.issue("other").key.read_bytes())
    else:
        first.certificate.unlink()
    server.refresh(at_once=True)
    server.refresh(at_once=True)
    assert shake_hands(client, server) == first.serial
    assert str(first.certificate) in server.fault
    assert [record.levelname for record in caplog.records] == ["ERROR"], "said once, not at every look"
    second = authority.issue("server")
    server.refresh(at_once=True)
    assert shake_hands(client, server) == second.serial and not server.fault


def test_nothing_is_read_again_while_the_files_stay_the_same(authority):
    server = server_tls(files_of(authority.issue("server")))
    before = server.current
    server.refresh(at_once=True)
    assert server.current is before and server.reloads == 0


@pytest.mark.parametrize("name", ["another authority", "another name", "expired"])
def test_a_server_that_does_not_prove_who_it_is_is_refused(tmp_path, authority, name):
    issued = authority.issue("server", days=-1 if name == "expired" else 1)
    trusted = Authority(tmp_path, "strangers") if name == "another authority" else authority
    client = client_tls(TlsFiles(authorities=trusted.path))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, server_tls(files_of(issued)), "10.0.0.1" if name == "another name" else "127.0.0.1")


@pytest.mark.parametrize("clients", ["none", "optional", "required"])
def test_clients_show_a_certificate_where_they_must(tmp_path, authority, clients):
    server = server_tls(files_of(authority.issue("server"), authority), clients=clients)
    with_certificate = client_tls(files_of(authority.issue("client", "gateway"), authority))
    without = client_tls(TlsFiles(authorities=authority.path))
    shake_hands(with_certificate, server)
    if clients == "required":
        with pytest.raises(ssl.SSLError):
            shake_hands(without, server)
    else:
        shake_hands(without, server)


@pytest.mark.parametrize("version", ["TLSv1_1", "TLSv1_2", "TLSv1_3"])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_tls_1_2_is_the_oldest_that_is_spoken(authority, version):
    server = server_tls(files_of(authority.issue("server")))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(authority.path)
    client.set_ciphers("ALL:@SECLEVEL=0")  # else OpenSSL itself would not offer the old one
    client.minimum_version = client.maximum_version = ssl.TLSVersion[version]
    if version == "TLSv1_1":
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL"):
            shake_hands(client, server)
    else:
        shake_hands(client, server)


def test_the_command_line_trusts_this_servers_certificate_and_no_other_of_its_authority(authority):
    ours, other = authority.issue("server", "gateway.example"), authority.issue("other", "gateway.example")
    client = own_server_tls(ours.certificate)
    assert shake_hands(client, server_tls(files_of(ours))) == ours.serial
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, server_tls(files_of(other)))


def test_what_cannot_be_used_stops_the_start_and_names_the_file(tmp_path, authority):
    issued = authority.issue("server")
    empty, missing = tmp_path / "empty.pem", tmp_path / "missing.pem"
    empty.write_text("")
    for files, words in (
        (TlsFiles(missing, issued.key), "missing.pem cannot be read: No such file"),
        (TlsFiles(issued.certificate, missing), "missing.pem cannot be read: No such file"),
        (TlsFiles(empty, issued.key), "empty.pem and .* cannot be used for TLS"),
        (TlsFiles(issued.certificate, authority.issue("other").key), "the key is not the certificate's"),
        (TlsFiles(), "needs a certificate"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            server_tls(files)
    with pytest.raises(ConfigurationError, match=r"empty\.pem holds no certificates to trust"):
        client_tls(TlsFiles(authorities=empty))


def test_an_encrypted_key_is_refused_rather_than_asked_for_at_the_terminal(authority):
    from cryptography.hazmat.primitives import serialization

    issued = authority.issue("server")
    key = serialization.load_pem_private_key(issued.key.read_bytes(), None)
    issued.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigurationError, match="encrypted"):
        server_tls(files_of(issued))

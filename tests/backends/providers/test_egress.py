"""Where the provider host may connect to: what targets name, and nothing else, from any library of the process."""

import json
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from backends.providers.egress import Egress, EgressRefused

ROOT = Path(__file__).resolve().parents[3]
PUBLIC, INWARD, METADATA = "93.184.216.34", "10.0.0.7", "169.254.169.254"


def allows_host(egress: Egress, host: str) -> bool:
    try:
        egress.check_host(host)
    except EgressRefused:
        return False
    return True


def allows_address(egress: Egress, address: str) -> bool:
    try:
        egress.check_address(address)
    except EgressRefused:
        return False
    return True


def named(url: str = "", model: str = "anthropic/claude", **parameters: Any) -> Egress:
    egress = Egress()
    egress.name_target(model, url, parameters)
    return egress


@pytest.mark.parametrize(
    ("egress", "host", "is_allowed"),
    [
        (Egress(), "api.anthropic.com", False),
        (named(), "api.anthropic.com", True),
        (named(), "API.Anthropic.com.", True),
        (named(), "evil.api.anthropic.com", False),
        (named(), "api.openai.com", False),
        (named("https://llm.example:8443/v1"), "llm.example", True),
        (named("https://llm.example:8443/v1"), "api.anthropic.com", False),
        (named(model="x/y", custom_llm_provider="mistral"), "api.mistral.ai", True),
        (named(model="bedrock/m", aws_region_name="eu-west-1"), "bedrock-runtime.eu-west-1.amazonaws.com", True),
        (named(model="bedrock/m", aws_region_name="eu-west-1"), "s3.eu-west-1.amazonaws.com", False),
        (named(model="bedrock/m", aws_bedrock_runtime_endpoint="https://vpce.example"), "vpce.example", True),
        (Egress(["*.example"]), "a.example", True),
        (Egress(["*.example"]), "example", False),
        (Egress(environment={"HTTPS_PROXY": "http://proxy.example:3128"}), "proxy.example", True),
    ],
)
def test_only_hosts_that_are_named_are_looked_up(egress: Egress, host: str, is_allowed: bool) -> None:
    assert allows_host(egress, host) is is_allowed


def test_an_address_is_connected_to_only_where_an_allowed_name_led_to_it() -> None:
    egress = named()
    assert not allows_address(egress, PUBLIC)
    egress.note_found("api.anthropic.com", [PUBLIC])
    assert allows_address(egress, PUBLIC) and not allows_address(egress, "93.184.216.35")


@pytest.mark.parametrize("address", [INWARD, METADATA, "127.0.0.1", "::1", "::ffff:10.0.0.7", "168.63.129.16"])
def test_a_name_that_leads_inward_is_refused(address: str) -> None:
    egress = named()
    egress.note_found("api.anthropic.com", [address])
    assert not allows_address(egress, address) and not allows_host(egress, address)


def test_inward_networks_are_allowed_where_the_operator_says_so() -> None:
    egress = Egress(inward=[ip_network("10.0.0.0/24")])
    egress.name_target("openai/m", "http://llm.internal/v1", {})
    egress.note_found("llm.internal", [INWARD, METADATA])
    assert allows_address(egress, INWARD) and not allows_address(egress, METADATA)


def test_a_target_that_names_an_inward_address_itself_is_taken_at_its_word() -> None:
    egress = named("http://127.0.0.1:9999/v1")
    assert allows_address(egress, "127.0.0.1") and not allows_address(egress, "127.0.0.2")
    local = named("http://localhost:9999/v1")
    local.note_found("localhost", ["127.0.0.1", "::1"])
    assert allows_address(local, "::1")


_TRIES = """
import asyncio, json, multiprocessing.util, os, socket, subprocess, sys, threading, urllib.request
from backends.providers.egress import Egress

def serve():
    server = socket.create_server(("127.0.0.1", 0))
    return server, server.getsockname()[1]

def serve_at(address):
    server = socket.create_server((address, 0))
    return server, server.getsockname()[1]

listed, port = serve()
other, other_port = serve_at("127.0.0.2")
path = sys.argv[1]
local = socket.socket(socket.AF_UNIX); local.bind(path); local.listen()
egress = Egress()
egress.name_target("anthropic/claude", f"http://127.0.0.1:{port}", {})
egress.hold()

def outcome(act):
    try:
        act()
    except Exception as error:
        kinds, one = [], error
        while one is not None:
            kinds.append(type(one).__name__); one = one.__cause__ or one.__context__ or getattr(one, "reason", None)
        return "refused" if "EgressRefused" in kinds else repr(error)
    return "done"

def in_a_thread():
    failed = []
    def run():
        try: socket.create_connection(("127.0.0.2", other_port), 5).close()
        except OSError as error: failed.append(error)
    thread = threading.Thread(target=run); thread.start(); thread.join()
    if failed: raise failed[0]

async def by_asyncio(host, number):
    _, writer = await asyncio.open_connection(host, number)
    writer.close()

def datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender: sender.sendto(b"x", ("127.0.0.2", 53))

def connected_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.2", 0))  # what is sent then raises no event
        sender.send(b"x")

def spawned():
    os.waitpid(multiprocessing.util.spawnv_passfds(b"/bin/true", [b"true"], []), 0)

def unix():
    with socket.socket(socket.AF_UNIX) as asking: asking.connect(path)

print(json.dumps({
    "listed": outcome(lambda: socket.create_connection(("127.0.0.1", port), 5).close()),
    "listed by asyncio": outcome(lambda: asyncio.run(by_asyncio("127.0.0.1", port))),
    "not listed": outcome(lambda: socket.create_connection(("127.0.0.2", other_port), 5).close()),
    "by asyncio": outcome(lambda: asyncio.run(by_asyncio("127.0.0.2", other_port))),
    "by urllib": outcome(lambda: urllib.request.urlopen(f"http://127.0.0.2:{other_port}", timeout=5)),
    "in a thread": outcome(in_a_thread),
    "a name": outcome(lambda: socket.getaddrinfo("metadata.google.internal", 80)),
    "an old look-up": outcome(lambda: socket.gethostbyname("metadata.google.internal")),
    "a datagram": outcome(datagram),
    "a datagram to port 0": outcome(connected_datagram),
    "asking back": outcome(lambda: socket.gethostbyaddr("127.0.0.2")),
    "asking back for a port": outcome(lambda: socket.getnameinfo(("127.0.0.2", 80), 0)),
    "a worker process": outcome(spawned),
    "a socket of this machine": outcome(unix),
    "another program": outcome(lambda: subprocess.run(["true"])),
    "a shell": outcome(lambda: os.system("true")),
}))
"""


def test_the_whole_process_is_held(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", _TRIES, str(tmp_path / "socket")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={"PYTHONPATH": str(ROOT)}, check=True
    )
    assert json.loads(done.stdout) == {
        "listed": "done",
        "listed by asyncio": "done",
        **dict.fromkeys(
            ("not listed", "by asyncio", "by urllib", "in a thread", "a name", "an old look-up", "a datagram"),
            "refused",
        ),
        **dict.fromkeys(("a datagram to port 0", "asking back", "asking back for a port"), "refused"),
        **dict.fromkeys(("a socket of this machine", "another program", "a shell", "a worker process"), "refused"),
    }

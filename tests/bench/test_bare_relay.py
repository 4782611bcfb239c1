"""The bare relay passes everything on as it came, one connection kept on each side."""

import os
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench.load.peers import start_bare_relay

PIECES = [b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n"]


@pytest.mark.service
def test_whole_answers_and_streams_pass_as_they_came(tmp_path: Path) -> None:
    ports: set[int] = set()

    class Upstream(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.close_connection = False  # whoever waits for the relay asks to; the next could then lose its reply
            ports.add(self.client_address[1])
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            if b"stream" in body:
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for piece in [*PIECES, b""]:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                return
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Do nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        process, peer = start_bare_relay(min(os.sched_getaffinity(0)), tmp_path, server.server_port)
        try:
            ports.clear()
            client = HTTPConnection("127.0.0.1", peer.port, timeout=30)
            found = []
            for body in (b"x" * 2000, b"stream", b"y", b"stream"):
                client.request("POST", "/v1/chat/completions", body)
                found.append(client.getresponse().read())
            client.close()
        finally:
            process.stop()
            server.shutdown()
            thread.join()
    assert found == [b"x" * 2000, b"".join(PIECES), b"y", b"".join(PIECES)]
    assert len(ports) == 1

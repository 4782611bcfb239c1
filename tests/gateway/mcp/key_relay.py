"""`python -m tests.gateway.mcp.key_relay PORT KEY`: a relay that puts a key on each request.

Prints the port that it listens on.
"""

import asyncio
import sys


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Relay one connection."""
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))

    async def back() -> None:
        while data := await far_reader.read(1 << 16):
            writer.write(data)
        writer.close()

    going = asyncio.create_task(back())
    try:
        while True:
            head = await reader.readuntil(b"\r\n")
            far_writer.write(head + f"authorization: Bearer {sys.argv[2]}\r\n".encode())
            length = 0
            while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                far_writer.write(line)
            far_writer.write(b"\r\n" + (await reader.readexactly(length) if length else b""))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        far_writer.close()
        going.cancel()


async def main() -> None:
    """Relay until killed."""
    server = await asyncio.start_server(relay, "127.0.0.1", 0, limit=1 << 22)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

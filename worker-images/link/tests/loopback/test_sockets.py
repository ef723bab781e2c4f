"""The kernel's own word about a real connection."""

import socket

from pdd_link.sockets import by_remote, established


def test_a_connection_of_this_process_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"x" * 100_000)
            received = 0
            while received < 100_000:
                received += len(accepted.recv(65_536))
            ours = client.getsockname(), client.getpeername()
            [found] = [c for c in established() if ((c.local, c.local_port), (c.remote, c.remote_port)) == ours]
    assert found.bytes_acked > 0
    assert found.segments_out > 0
    assert found.window_segments > 0
    assert found.path_mtu > 1280
    assert found.min_round_trip_micros is not None
    assert by_remote([found])["127.0.0.1"].connections == 1

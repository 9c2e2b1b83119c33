"""
The promises of `Box`, kept by the fake one, by OpenSSH and by the server of the demo box alike.
"""

import hashlib
import http.client
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtpdeploy.core.machine import Host
from mtpdeploy.demo.wire import SshServer
from mtpdeploy.errors import ConnectionLost
from mtpdeploy.remote.box import Box, Stream
from mtpdeploy.remote.ssh import SshBox
from tests.fakes.box import LocalBox
from tests.fakes.sshd import DEADLINE, Sshd, free_port


@pytest.fixture(params=["local", "ssh", "demo"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    """
    Each kind of box in turn.
    """
    if request.param == "local":
        with LocalBox(tmp_path) as local:
            yield local
        return
    if request.param == "demo":
        with SshServer(tmp_path, tmp_path / "keys", {}) as demo:
            host = Host(
                name="demo",
                address=demo.address,
                port=demo.port,
                user=demo.user,
                identity_file=str(demo.identity_file),
            )
            with SshBox(host, state=tmp_path) as simulated:
                yield simulated
        return
    sshd: Sshd = request.getfixturevalue("sshd")
    with SshBox(sshd.host(), state=tmp_path, config=sshd.client_config) as real:
        yield real


def read_all(stream: Stream) -> bytes:
    """
    Everything a stream gives until its end.
    """
    data = b""
    while chunk := stream.read(DEADLINE):
        data += chunk
    assert chunk is not None, "the stream fell silent"
    return data


class TestRun:
    """
    Scripts and their answers.
    """

    def test_gives_both_streams_and_the_status(self, box: Box) -> None:
        """
        Output and errors come apart, and a failing script is no error.
        """
        result = box.run("echo out; echo err >&2; exit 7")

        assert (7, b"out\n", b"err\n") == (result.status, result.out, result.err)

    def test_needs_no_newline_at_the_end(self, box: Box) -> None:
        """
        Output that ends within a line comes back without one.
        """
        assert b"no newline" == box.run("printf 'no newline'").out

    def test_has_no_standard_input(self, box: Box) -> None:
        """
        A script that reads gets the end of file at once, not the next request.
        """
        assert b"[]\n" == box.run('cat; read x; echo "[$x]"').out

    @pytest.mark.parametrize("ending", ["exit 0", "kill -9 $$", "exec true", "set -e; false"])
    def test_outlives_what_a_script_does_to_itself(self, box: Box, ending: str) -> None:
        """
        However one script ends, the next one runs.
        """
        box.run(ending)

        assert b"still here\n" == box.run("echo still here").out

    def test_shows_death_by_signal_as_a_shell_does(self, box: Box) -> None:
        """
        128 + 9 for SIGKILL.
        """
        assert 137 == box.run("kill -9 $$").status

    def test_carries_large_scripts_exactly(self, box: Box) -> None:
        """
        A program of 300 KB in a heredoc arrives byte for byte: more than any argument may hold.
        """
        text = "".join(f"{number} $HOME `x` \\ ' \" ü ✓\t\n" for number in range(12_000))
        assert len(text.encode()) > 300_000

        result = box.run(f"sha256sum <<'EOF-1'\n{text}EOF-1\n")

        assert hashlib.sha256(text.encode()).hexdigest() == result.text.split()[0]

    def test_runs_nothing_of_a_script_that_is_not_whole(self, box: Box, tmp_path: Path) -> None:
        """
        A script is parsed to its end before its first command runs.
        """
        result = box.run(f"touch '{tmp_path}/ran'\necho 'an open quote")

        assert (True, False) == (result.status != 0, (tmp_path / "ran").exists())

    def test_gives_binary_output_exactly(self, box: Box) -> None:
        """
        Every byte value, in 4 MB, more than the SSH window.
        """
        program = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 16384)"

        assert bytes(range(256)) * 16384 == box.run(f"python3 -c '{program}'").out

    def test_takes_much_on_both_streams_at_once(self, box: Box) -> None:
        """
        3 MB of errors do not block 3 MB of output, nor the other way round.
        """
        result = box.run("head -c 3000000 /dev/zero >&2; head -c 3000000 /dev/zero; echo done >&2")

        assert (3_000_000, 3_000_005) == (len(result.out), len(result.err))

    def test_shows_output_while_the_script_runs(self, box: Box, tmp_path: Path) -> None:
        """
        `on_output` is given bytes before the end: here the script waits for what it does.
        """
        seen: list[bytes] = []

        def take(data: bytes) -> None:
            seen.append(data)
            (tmp_path / "seen").touch()

        result = box.run(
            f"echo first; while [ ! -e '{tmp_path}/seen' ]; do sleep 0.01; done; echo last", on_output=take
        )

        assert b"first\nlast\n" == b"".join(seen) == result.out

    def test_does_not_wait_for_what_runs_in_the_background(self, box: Box, tmp_path: Path) -> None:
        """
        A child that holds the output open does not hold up the answer.
        """
        script = f"(while [ ! -e '{tmp_path}/go' ]; do sleep 0.01; done) & echo launched"

        out = box.run(script).out
        (tmp_path / "go").touch()

        assert b"launched\n" == out

    def test_says_that_the_answer_is_unknown_when_the_limit_passed(self, box: Box) -> None:
        """
        A script that takes too long is a lost connection, and the next one is answered.
        """
        with pytest.raises(ConnectionLost):
            box.run("echo begun; sleep 2", limit=0.5)

        assert b"next\n" == box.run("echo next").out

    def test_counts_a_round_trip_each(self, box: Box) -> None:
        """
        Once it stands, one script costs one round trip.
        """
        box.run("true")
        before = box.round_trips
        box.run("true")
        box.run("head -c 100000 /dev/zero")

        assert 2 == box.round_trips - before

    def test_leaves_nothing_behind_for_the_next_script(self, box: Box) -> None:
        """
        Each script has a shell of its own: no variable, folder or trap of the last one.
        """
        box.run("cd /; v=1; trap 'echo trapped' EXIT; set -f")

        assert b"unset\n" == box.run("echo ${v-unset}").out


class TestStream:
    """
    Long output, read as it comes.
    """

    def test_gives_bytes_as_they_come_and_then_the_end(self, box: Box, tmp_path: Path) -> None:
        """
        Bytes, None while nothing comes, b"" at the end.
        """
        stream = box.stream(f"echo one; while [ ! -e '{tmp_path}/go' ]; do sleep 0.01; done; echo two")
        first = stream.read(DEADLINE)
        nothing = stream.read(0.05)
        (tmp_path / "go").touch()
        rest = read_all(stream)
        stream.close()

        assert (b"one\n", None, b"two\n") == (first, nothing, rest)

    def test_goes_on_beside_scripts(self, box: Box, tmp_path: Path) -> None:
        """
        A stream and a script run at the same time, and neither gets the other's bytes.
        """
        stream = box.stream(f"while [ ! -e '{tmp_path}/go' ]; do echo s; sleep 0.002; done")
        assert (stream.read(DEADLINE) or b"").startswith(b"s\n")
        outputs = {box.run("head -c 200000 /dev/zero").out for _ in range(5)}
        (tmp_path / "go").touch()
        data = read_all(stream)
        stream.close()

        assert ({b"\0" * 200_000}, {b"s"}) == (outputs, set(data.split()))

    def test_carries_much_exactly(self, box: Box) -> None:
        """
        8 MB of every byte value.
        """
        program = "import sys\nfor i in range(30): sys.stdout.buffer.write(bytes(range(256)) * 1000)"
        stream = box.stream(f"python3 -I - <<'EOF-2'\n{program}\nEOF-2\n")
        digest = hashlib.sha256(read_all(stream))
        stream.close()

        assert hashlib.sha256(bytes(range(256)) * 30_000).digest() == digest.digest()

    def test_is_not_stopped_by_errors_that_nobody_reads(self, box: Box) -> None:
        """
        5 MB on standard error do not block the output.
        """
        stream = box.stream("head -c 5000000 /dev/zero >&2; echo done")
        data = read_all(stream)
        stream.close()

        assert b"done\n" == data

    def test_can_be_closed_by_another_thread(self, box: Box) -> None:
        """
        Closing wakes a reader, twice is harmless, and reading then gives the end.
        """
        stream = box.stream("echo up; sleep 2")
        assert b"up\n" == stream.read(DEADLINE)
        threading.Timer(0.1, stream.close).start()

        woken = stream.read(DEADLINE)
        stream.close()

        assert (b"", b"") == (woken, stream.read(0))

    def test_two_at_once(self, box: Box) -> None:
        """
        The next stream may begin before the last one is closed.
        """
        first, second = box.stream("echo 1; sleep 2"), box.stream("echo 2; sleep 20")
        seen = (first.read(DEADLINE), second.read(DEADLINE))
        first.close()
        second.close()

        assert (b"1\n", b"2\n") == seen


@pytest.fixture
def echo_port() -> Iterator[int]:
    """
    A server that sends back what it gets, and ends when its client does.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            while data := client.recv(65536):
                client.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    yield int(listener.getsockname()[1])
    thread.join()
    listener.close()


@pytest.fixture
def http_port() -> Iterator[int]:
    """
    A web server whose answers end with the connection.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body * 1000)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


class TestOpenPort:
    """
    A port of the box, from here.
    """

    def test_works_like_a_socket(self, box: Box, echo_port: int) -> None:
        """
        Bytes go both ways, a timeout is a TimeoutError, and half a connection can be ended.
        """
        sock = box.open_port(echo_port)
        sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            sock.recv(10)
        sock.settimeout(DEADLINE)
        sock.sendall(b"abc")
        echoed = sock.recv(10)
        sock.shutdown(socket.SHUT_WR)
        ended = sock.recv(10)
        sock.close()

        assert (b"abc", b"") == (echoed, ended)

    def test_is_refused_where_nothing_listens(self, box: Box) -> None:
        """
        As a local connection would be.
        """
        with pytest.raises(ConnectionRefusedError):
            box.open_port(free_port())

    def test_serves_http(self, box: Box, http_port: int) -> None:
        """
        http.client closes its socket before it has read a body that ends with the connection.
        """
        connection = http.client.HTTPConnection("127.0.0.1", http_port)
        connection.sock = box.open_port(http_port)
        connection.request("POST", "/", b"0123456789")
        answer = connection.getresponse()

        assert (200, b"0123456789" * 1000) == (answer.status, answer.read())
        connection.close()


def test_closing_twice_is_harmless(box: Box) -> None:
    """
    And a box may be closed before it was ever used.
    """
    box.close()
    box.close()

"""Addresses: a real server on this machine that answers well, badly, slowly, endlessly, or not at all."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import Result as Done

import simbatch as sb
from simbatch.answers.diagnose.fetch import address_of, fetch, is_address
from simbatch.answers.diagnose.source import read_source

Answer = Callable[[BaseHTTPRequestHandler], None]
Serve = Callable[[Answer], str]
RUNNING = 'vllm:num_requests_running{{engine="0"}} {}\nvllm:num_requests_waiting{{engine="0"}} {}\n'


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server on the loopback that answers each GET by a function; its address."""
    started: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    answer(self)
                except OSError:
                    self.close_connection = True  # whoever asked has gone

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        started.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server, thread in started:
        server.shutdown()
        server.server_close()
        thread.join()


def page(text: str, code: int = 200, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in ({"Content_Length": str(len(text.encode()))} | headers).items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(text.encode())

    return answer


def test_a_server_is_asked_at_its_metrics(serve: Serve, simbatch: Callable[..., Done]) -> None:
    paths = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        paths.append(handler.path)
        page(RUNNING.format(5, 0))(handler)

    address = serve(answer)
    for given in (address, f"{address}/", f"{address}/metrics", address.removeprefix("http://")):
        done = simbatch("diagnose", given, "--json")
        assert json.loads(done.stdout)["findings"][0]["id"] == "demand-limited"
    assert paths == ["/metrics"] * 4


def test_two_scrapes_of_an_address_give_rates(serve: Serve) -> None:
    count = iter(range(1, 10))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        tokens = (
            f'# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total{{engine="0"}} {next(count) * 100}\n'
        )
        page(RUNNING.format(32, 10) + tokens)(handler)

    found = read_source(serve(answer), interval_s=0.2)
    assert isinstance(found, dict)
    assert found["interval_s"] == pytest.approx(0.2, abs=0.15)
    assert found["generation_tok_s"] == pytest.approx(100 / found["interval_s"])
    assert len(found["series"]) == 2


def test_a_restart_between_the_scrapes(serve: Serve) -> None:
    count = iter((900, 5))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        page(RUNNING.format(1, 0) + f'vllm:generation_tokens_total{{engine="0"}} {next(count)}\n')(handler)

    with pytest.raises(sb.UsageError, match="the server restarted between the scrapes"):
        read_source(serve(answer), interval_s=0.05)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (page(""), "the page is empty"),
        (page("<!doctype html><title>Login</title>\n"), "this is an HTML page, not metrics"),
        (page("llamacpp:requests_deferred 1\n"), "these are metrics of llama.cpp"),
        (page("no such page", 404), "the server answered 404 (Not Found). Give the address of /metrics itself."),
        (page("busy", 503), "the server answered 503"),
        (page(RUNNING.format(1, 0), Content_Length="9999"), "the page broke off after"),
        (page(RUNNING.format(1, 0)[:-4]), "the page breaks off in"),
        (page("x", Content_Encoding="gzip"), "the page comes compressed"),
        (page("x", Content_Length=str(10**12)), "the answer is longer than 8 MiB"),
    ],
    ids=["empty", "html", "foreign", "404", "503", "short", "cut", "gzip", "huge"],
)
def test_an_answer_that_is_no_page(serve: Serve, answer: Answer, says: str) -> None:
    with pytest.raises(sb.SimbatchError) as caught:
        read_source(serve(answer), timeout_s=5)
    assert says in str(caught.value)


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"vllm:num_requests_running 1\n" * 4096)


def dripping(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b"v")
        handler.wfile.flush()
        time.sleep(0.05)


def dripping_headers(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(100):
        handler.wfile.write(f"X-{number}: 1\r\n".encode())
        handler.wfile.flush()
        time.sleep(0.05)


def silent(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(2)


def test_an_endless_answer_ends_at_the_limit(serve: Serve) -> None:
    started = time.monotonic()
    with pytest.raises(sb.SimbatchError, match="longer than 1 MiB, which no page of metrics is"):
        fetch(serve(endless), timeout_s=20, most_bytes=2**20)
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("answer", [dripping, dripping_headers, silent])
def test_a_slow_answer_ends_with_the_time(serve: Serve, answer: Answer) -> None:
    started = time.monotonic()
    with pytest.raises(sb.SimbatchError, match=r"no whole answer within 0\.4 s"):
        fetch(serve(answer), timeout_s=0.4)
    assert time.monotonic() - started < 2


def test_nobody_listens(simbatch: Callable[..., Done]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    done = simbatch("diagnose", f"http://127.0.0.1:{port}/metrics", "--timeout", "5s")
    assert done.exit_code == 1
    assert f"http://127.0.0.1:{port}/metrics: connection refused. Start the server, or give its port." in done.stderr
    assert "Traceback" not in done.output


def test_what_is_an_address() -> None:
    assert is_address("http://a/metrics")
    assert is_address("localhost:8000")
    assert is_address("10.0.0.1:8000/metrics")
    assert not is_address("page.prom")
    assert not is_address("runs/first")
    assert address_of("localhost:8000") == "http://localhost:8000/metrics"
    assert address_of("https://a.example/m?x=1") == "https://a.example/m?x=1"
    for wrong in ("http://", "http://:80/metrics", "http://a:port/"):
        with pytest.raises(sb.UsageError, match="is not an address"):
            address_of(wrong)

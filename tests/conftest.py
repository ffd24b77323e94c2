"""Fixtures for all tests: real services on loopback, and no way to reach anything else.

Session fixtures hand out addresses; a service starts when the first test asks for one, or with the run when all tests
run. One that is missing or does not start fails the test. `tests/workers.py` runs the tests in several processes;
`tests/tracing.py`, `tests/parts.py` and `tests/depth.py` say what is traced for coverage, what starts first, and how
far property tests look.
"""

import functools
import gc
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.services.chromium import chromium
from tests.services.ministack import ministack
from tests.services.moto import moto
from tests.services.postgres import RestartablePostgres, postgres
from tests.services.run import Run
from tests.services.start import start
from tests.services.valkey import valkey
from tests.support.preloaded import start_server

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.services.page import PageWatch

pytest.register_assert_rewrite(
    "holdfast.testing", "tests.conformance.database", "tests.conformance.queue_backend", "tests.conformance.shard_store"
)

RUN = pytest.StashKey[Run]()
STARTING = pytest.StashKey[list[threading.Thread]]()
"""The threads that start services."""
GARBAGE_THRESHOLD = 500_000
"""How many new objects let a test process look for garbage. With Python's 700, that takes a sixth of the time of
tests with an emulator or a linter, because all that those have loaded is looked at again and again; with 50,000, it
still takes a twentieth of the time of all tests."""
SERVICES = {"postgres": postgres, "moto": moto, "ministack": ministack, "valkey": valkey}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--start-services", action="store_true", help="start all services at once, for a run of all tests")


def pytest_configure(config: pytest.Config) -> None:
    # A shell lets what it starts in the background ignore Ctrl-C, which processes of the tests would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[RUN] = Run.begin()
    config.stash[STARTING] = []
    if config.getoption("--start-services"):
        # While tests are collected, the services start.
        config.stash[STARTING] = config.stash[RUN].start_early(SERVICES)
        if sys.platform == "linux":
            start_server()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Look for no garbage meanwhile: there is none among all those tests, and looking takes two fifths of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD)
        gc.enable()
        for thread in session.config.stash[STARTING]:
            thread.join()  # workers cannot be forked while others hold locks


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[RUN].end()


@pytest.fixture(scope="session", autouse=True)
def no_outside_world() -> Iterator[None]:
    """No test finds the user's cloud account or proxy, or asks the machine it runs on for credentials."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("AWS_") or name.lower().endswith("_proxy"):
                patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        yield


@pytest.fixture(scope="session", autouse=True)
def models_read_once() -> Iterator[None]:
    """Let all sessions of botocore share what they read: parsing the models of a service takes longer than a test.

    They also share the names of events that they have translated, of which a new session has 500.
    """
    import botocore.hooks
    import botocore.session

    aliases, names = botocore.hooks.EVENT_ALIASES, dict[str, str]()
    create = botocore.hooks.EventAliaser.__init__

    def create_with_shared_names(self: Any, *arguments: Any, **more: Any) -> None:
        create(self, *arguments, **more)
        if self._event_aliases is aliases:
            self._alias_name_cache = names

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", functools.cache(botocore.session.create_loader))
        patch.setattr(botocore.hooks.EventAliaser, "__init__", create_with_shared_names)
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Let all clients of httpx share the certificates that they trust by default: reading them takes 20 ms."""
    import httpx._transports.default

    create = httpx.create_ssl_context

    @functools.cache
    def read(trust_env: bool, *_: str | None) -> Any:
        return create(trust_env=trust_env)

    def share(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        if verify is not True or cert is not None:
            return create(verify, cert, trust_env)
        return read(trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx._transports.default, "create_ssl_context", share)
        yield


@pytest.fixture(scope="session")
def services(pytestconfig: pytest.Config) -> Run:
    return pytestconfig.stash[RUN]


@pytest.fixture(scope="session")
def postgres_url(services: Run, worker_id: str) -> str:
    """A superuser's URL to a database of this worker alone, empty when the run starts."""
    import psycopg

    server = services.shared("postgres", postgres)
    database = f"holdfast_{worker_id}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {database}".encode())
    return server.rpartition("/")[0] + "/" + database


@pytest.fixture
def restartable_postgres(services: Run) -> Iterator[RestartablePostgres]:
    """A PostgreSQL of this test alone, which it may `stop()` and `start()`: same port, same data."""
    server = RestartablePostgres.create(services.private("restartable"), services.controller)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def valkey_url(services: Run) -> str:
    """All workers share it: use keys of your own."""
    return services.shared("valkey", valkey)


@pytest.fixture(scope="session")
def moto_url(services: Run) -> str:
    """All workers share it: use names of your own."""
    return services.shared("moto", moto)


@pytest.fixture(scope="session")
def ministack_url(services: Run) -> str:
    """All workers share it: use names of your own."""
    return services.shared("ministack", ministack)


@pytest.fixture(scope="session")
def chromium_endpoint(services: Run) -> str:
    """Where Playwright's `connect_over_cdp` finds the browser of this worker.

    Workers cannot share one: each connection puts its own colour scheme on the pages of all others.
    """
    return start(chromium, services.private("chromium"), services.controller)


@pytest.fixture
def page_watch() -> "PageWatch":
    """What `browser_page` complains about; `page_watch.allow("401")` expects a complaint."""
    from tests.services.page import PageWatch

    return PageWatch()


@pytest.fixture
def browser_page(chromium_endpoint: str, page_watch: "PageWatch") -> Iterator["Page"]:
    """A new page in a new context; the test fails when it logs an error or speaks to anything but loopback."""
    from playwright.sync_api import sync_playwright

    # Not for the whole session: while it runs, Playwright's own event loop keeps asyncio.run from working.
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(chromium_endpoint)
        context = browser.new_context()
        page_watch.watch(context)
        yield context.new_page()
        context.close()
        browser.close()
    complaints = page_watch.verdict()
    if complaints:
        pytest.fail("\n".join(complaints))

"""Who a request comes from, and what a role may do."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from litestar import Litestar, get
from litestar.datastructures import State

from holdfast.engines.sqlite import SqliteDatabase
from holdfast.server.auth import Authenticator, create_role_guard
from holdfast.server.credentials import CredentialStore, Role
from holdfast.server.problems import build_problem_response
from holdfast.testing import FakeClock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CredentialStore]:
    with SqliteDatabase(tmp_path / "server.sqlite") as database:
        yield CredentialStore(database, FakeClock())


def ask(store: CredentialStore | None, *roles: Role, **headers: str) -> httpx.Response:
    @get("/here", guards=[create_role_guard(*roles)])
    async def here() -> str:
        return "welcome"

    app = Litestar(
        [here],
        state=State({"authenticator": Authenticator(store)}),
        exception_handlers={Exception: build_problem_response},
        openapi_config=None,
        logging_config=None,
    )

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/here", headers=headers)

    return asyncio.run(send())


@pytest.mark.parametrize("needed", Role)
@pytest.mark.parametrize("role", Role)
def test_a_guard_lets_its_role_and_operators_through(store: CredentialStore, role: Role, needed: Role) -> None:
    tenant = "tenant-1" if role is Role.TENANT else None
    _, token = store.create(role, tenant=tenant, workloads=["shop"] if role is Role.SENDER else [])
    response = ask(store, needed, authorization=f"Bearer {token}")
    assert response.status_code == (200 if role.includes(needed) else 403)


def test_a_guard_for_several_roles_names_all_of_them(store: CredentialStore) -> None:
    credential, token = store.create(Role.TENANT, tenant="tenant-1")
    response = ask(store, Role.OPERATOR, Role.VIEWER, authorization=f"Bearer {token}")
    expected = f"credential {credential.id} has role tenant: this request needs role operator or viewer"
    assert response.json()["detail"] == expected


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER {}", "Bearer   {}", "Bearer {} "])
def test_a_token_is_taken_however_its_header_is_spelled(store: CredentialStore, form: str) -> None:
    _, token = store.create(Role.VIEWER)
    assert ask(store, Role.VIEWER, authorization=form.format(token)).status_code == 200


@pytest.mark.parametrize("form", ["", "{}", "Bearer", "Bearer ", "Basic {}", "Bearer{}", "Bearer x{}", "Bearer {} {}"])
def test_any_other_header_is_refused(store: CredentialStore, form: str) -> None:
    _, token = store.create(Role.OPERATOR)
    assert ask(store, Role.VIEWER, authorization=form.format(token, token)).status_code == 401


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8470", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:1", "127.1.2.3:1", "[::1]", "[::1]:1"],
)
def test_an_open_server_answers_everybody_on_this_machine(host: str) -> None:
    assert ask(None, Role.OPERATOR, host=host).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "evil.test:8470",
        "localhost.evil.test",
        "127.0.0.1.evil.test",
        "evil.test:localhost",
        "10.0.0.1",
        "0.0.0.0",
        "[::]",
        "[::1",
        "localhost@evil.test",
        "evil.test/localhost",
        "evil.test#@localhost",
    ],
)
def test_an_open_server_does_not_answer_to_the_name_of_another_site(host: str) -> None:
    response = ask(None, Role.VIEWER, host=host)
    assert response.status_code in (400, 403)


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.test",
        "https://localhost.evil.test",
        "null",
        "",
        "http://[::2]:1",
        "http://localhost:3000",
        "http://127.0.0.1:8470",
        "https://localhost:8470",
    ],
)
def test_an_open_server_does_not_answer_to_a_page_of_another_site(origin: str) -> None:
    response = ask(None, Role.VIEWER, host="localhost:8470", origin=origin)
    assert response.status_code == 403
    assert "pages of other sites" in response.json()["detail"]


@pytest.mark.parametrize("host", ["localhost:8470", "127.0.0.1:8470", "[::1]:8470"])
def test_an_open_server_answers_to_its_own_pages(host: str) -> None:
    headers = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    assert ask(None, Role.OPERATOR, **headers).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_an_open_server_does_not_answer_to_what_a_browser_says_comes_from_elsewhere(site: str) -> None:
    assert ask(None, Role.VIEWER, host="localhost:8470", **{"sec-fetch-site": site}).status_code == 403


@pytest.mark.parametrize(
    "header",
    ["X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Server", "X-Real-IP", "Forwarded", "Via"],
)
def test_an_open_server_does_not_answer_through_a_proxy(header: str) -> None:
    response = ask(None, Role.VIEWER, host="localhost:8470", **{header: "192.0.2.1"})
    assert response.status_code == 403
    assert "through a proxy" in response.json()["detail"]

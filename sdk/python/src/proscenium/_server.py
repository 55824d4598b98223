"""The server's address, ids and tokens."""

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ssl import SSLContext
from urllib.parse import quote

import httpx

ID_BYTES_MAX = 256
_TIMEOUT = httpx.Timeout(20.0, connect=5.0)

Token = str | Callable[[], str] | None


def check_id(member: str, text: str) -> str:
    """Returns the id. Raises `ValueError` if the server would reject it."""
    size = len(text.encode("utf-8", "replace"))
    if not 1 <= size <= ID_BYTES_MAX:
        raise ValueError(f"{member} has {size} bytes; an id has 1 to {ID_BYTES_MAX}")
    if any(unicodedata.category(char) == "Cc" for char in text):
        raise ValueError(f"{member} {text!r} has a control character; ids are printable text")
    return text


def path_segment(member: str, text: str) -> str:
    """Encodes an id as a segment of a path."""
    if text in (".", ".."):
        raise ValueError(f"{member} {text!r} cannot be part of a URL path; use another id")
    return quote(check_id(member, text), safe="")


@dataclass(frozen=True)
class Server:
    """The address of a server. httpx takes `verify`: a context, or whether to check certificates at all."""

    url: str
    token: Token = field(default=None, repr=False)
    verify: SSLContext | bool = True

    def __post_init__(self) -> None:
        parsed = httpx.URL(self.url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(f"{self.url!r} is not a server's address; use one such as http://127.0.0.1:8787")

    def address(self, path: str) -> str:
        return self.url.rstrip("/") + path

    def headers(self) -> Mapping[str, str]:
        """Returns the headers of the next request. A function as token can return a newer one each time."""
        try:
            token = self.token() if callable(self.token) else self.token
        except Exception as error:
            # The caller retries: the issuer of tokens may be away.
            raise httpx.TransportError(f"no token: {error!r}") from error
        return {"authorization": f"Bearer {token}"} if token else {}

    # The client neither retries nor follows redirects: only its user knows the numbers, and a token is for one server.

    def client(self) -> httpx.Client:
        return httpx.Client(timeout=_TIMEOUT, verify=self._verify(), trust_env=False)

    def async_client(self, timeout: float) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=httpx.Timeout(timeout, connect=5.0), verify=self._verify(), trust_env=False)

    def _verify(self) -> SSLContext | bool:
        # Loading the system's certificates takes longer than a request on loopback.
        return self.verify if self.url.startswith("https") else False

"""The reporter of tools inside a runtime that reports the run itself."""

from types import TracebackType

from .producer import Producer


class Reporter(Producer):
    """Reports tools of one run, beside the runtime's own facts. Use `call` for each call of a tool.

    Reporting never fails a tool, and blocks it only while the queue is full, at most for the stall timeout. As a
    context manager it closes itself.
    """

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> "Reporter":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

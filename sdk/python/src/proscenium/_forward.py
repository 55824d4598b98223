"""A stream of a framework, published while its caller reads it."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

from .run import Run, current_run

T = TypeVar("T")
# Publishes one item of the stream.
Publish = Callable[[Run, Any], None]


class Forward(Generic[T]):
    """Publishes a stream. `await` reads all of it; `async for` passes every item on as it comes."""

    def __init__(self, stream: AsyncIterable[T] | Iterable[T], run: Run | None, publish: Publish):
        run = run or current_run()
        if run is None:
            raise LookupError("forward() publishes to a run: call it inside `with Run(…)`, or pass run=")
        self._stream, self._run, self._publish = stream, run, publish

    async def __aiter__(self) -> AsyncIterator[T]:
        # The source starts the run, and the framework's tools may report before its first fact.
        self._run.continuing()
        async for item in _asynchronous(self._stream):
            self._publish(self._run, item)
            # The queue is bounded: a slow server slows the stream, and not the event loop.
            await self._run.drain()
            yield item

    def __await__(self) -> Generator[Any, None, None]:
        return self._read().__await__()

    async def _read(self) -> None:
        async for _ in self:
            pass


async def _asynchronous(stream: AsyncIterable[T] | Iterable[T]) -> AsyncIterator[T]:
    if isinstance(stream, AsyncIterable):
        async for item in stream:
            yield item
    else:
        for item in stream:
            yield item

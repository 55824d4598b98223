"""`@observe`: a function that is a tool reports its calls."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

from .calls import ToolCall
from .run import current_run
from .vocabulary import Audience

P = ParamSpec("P")
R = TypeVar("R")


@overload
def observe(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def observe(
    *, name: str | None = None, audience: Audience = "internal"
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def observe(function: Any = None, /, *, name: str | None = None, audience: Audience = "internal") -> Any:
    """Reports each call of a function, plain or `async`, as a call of a tool of the current run.

    The arguments are the input, the returned value is the output, for `audience`; an exception is the failure. Inside,
    `current_call()` reports progress, and a call of another observed function is a child. Without a current run the
    function just runs.
    """
    if function is None:
        return functools.partial(_observe, name=name, audience=audience)
    return _observe(function, name=name, audience=audience)


def _observe(function: Callable[P, R], *, name: str | None, audience: Audience) -> Callable[P, R]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"@observe takes functions that return their output; {function.__qualname__} is a generator")
    signature = inspect.signature(function)
    tool_name = name or function.__name__

    def call(args: Any, kwargs: Any) -> ToolCall | None:
        run = current_run()
        if run is None:
            return None
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError:
            bound = {}  # The call fails by itself, with Python's own message.
        return run.tool(tool_name, {key: value for key, value in bound.items() if key not in ("self", "cls")})

    @functools.wraps(function)
    def observed(*args: P.args, **kwargs: P.kwargs) -> R:
        if not (reported := call(args, kwargs)):
            return function(*args, **kwargs)
        with reported:
            output = function(*args, **kwargs)
            reported.result(output, audience=audience)
            return output

    @functools.wraps(function)
    async def observed_async(*args: P.args, **kwargs: P.kwargs) -> Any:
        if not (reported := call(args, kwargs)):
            return await cast(Any, function)(*args, **kwargs)
        with reported:
            output = await cast(Any, function)(*args, **kwargs)
            reported.result(output, audience=audience)
            return output

    return cast(Callable[P, R], observed_async) if inspect.iscoroutinefunction(function) else observed

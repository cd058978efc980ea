"""Train the same classifier thousands of times and learn how much the results vary.

The four packages are at the top of the repository. This folder has links to them, so that they are
installed and imported as parts of ``manyseed``, and their names do not clash with users' modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Made = TypeVar("Made", bound=Callable[..., Any])

    from manyseed.orchestrator.errors import (
        DamagedFile,
        ManyseedError,
        UnavailableError,
        UserError,
    )
    from manyseed.orchestrator.results.answers.likeness import alpha_hat, error_consistency
    from manyseed.orchestrator.sweep import Sweep, compare

    __version__: str

__all__ = [
    "DamagedFile",
    "ManyseedError",
    "Sweep",
    "UnavailableError",
    "UserError",
    "__version__",
    "alpha_hat",
    "classifier",
    "compare",
    "error_consistency",
]

_ERRORS = ("DamagedFile", "ManyseedError", "UnavailableError", "UserError")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    # on demand: tasks on thousands of nodes import this package without a table library
    if name == "Sweep":
        from manyseed.orchestrator.sweep import Sweep

        return Sweep
    if name == "compare":
        from manyseed.orchestrator.calls import with_further
        from manyseed.orchestrator.sweep import compare

        return with_further(compare)
    if name in _ERRORS:
        from manyseed.orchestrator import errors

        return getattr(errors, name)
    if name in ("alpha_hat", "error_consistency"):
        from manyseed.orchestrator.calls import checked
        from manyseed.orchestrator.results.answers import likeness

        return checked(getattr(likeness, name), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("manyseed")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def classifier(name: str, *, form: str | None = None, **options: Any) -> Callable[[Made], Made]:
    """Register your own class or function as a classifier for sweeps planned in this process.

    Grids of `Sweep.plan` name it like any other. Other processes must be able to import it: define
    it at the top of a module, or of a script that starts its sweep under
    ``if __name__ == "__main__":``.

    Parameters
    ----------
    name : str
    form : {"estimator", "train", "module"}, optional
        Its form (docs/own.md); by default "estimator" for a class and "train" for a function.
    **options
        Keys of its table ``[classifier.NAME]``, such as ``params``, ``space`` and ``version``.

    Examples
    --------
    >>> @classifier("nearest", params={"k": 3})
    ... def fit(X, y, X_test, n_classes, hparams):
    ...     ...
    """
    from manyseed.orchestrator.grids.own import classifier as registering

    return registering(name, form=form, **options)

"""What a database says when something is wrong, in words that tell what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from optimizer.base.errors import InputError
from optimizer.base.names import without_passwords

STORE = "--store"
ADVICE = (
    (
        ("disk is full", "no space left", "disk full", "disk i/o error"),
        "the disk is full or fails ({reason}). Every result saved before is kept: make room and run the same command "
        "again, or move the store and name it with --store",
    ),
    (
        ("readonly", "read-only", "attempt to write a readonly"),
        "cannot be written ({reason}). Give it and its folder write permission, or name another place with --store",
    ),
    (
        ("unable to open database file",),
        "cannot be opened or made ({reason}). Does the folder exist, and may you write there? "
        "--store names another place",
    ),
    (
        ("malformed", "not a database", "corrupt"),
        "is damaged or no store ({reason}). It was left as it is. Move it away and run the same command to start "
        "afresh; `sqlite3 FILE .recover` may save what it held",
    ),
    (
        ("database is locked", "database table is locked"),
        "is kept locked by another program ({reason}). Close it, or wait, and run the same command again",
    ),
    (
        ("could not connect", "connection refused", "connection failed", "could not translate host", "timeout expired"),
        "cannot be reached ({reason}). Is the server up, and are host, port, user and password right?",
    ),
    (
        ("no password supplied", "authentication failed", "permission denied"),
        "refuses access ({reason}). Check user, password and rights",
    ),
)


class StoreError(InputError):
    """The store cannot be used; what it held is still there."""


class NoBatch(StoreError):
    """There is no store yet, or a database without one."""


@contextmanager
def explained(where: str, option: str = STORE) -> Iterator[None]:
    """Turn what the database complains about into a StoreError that says what to do.

    `option` is the one that named the place.
    """
    place = f"{'store' if option == STORE else option} {without_passwords(where)}"
    try:
        yield
    except DBAPIError as error:
        raise StoreError(f"{place}: {advice(str(error.orig)).replace(STORE, option)}") from error
    except UnicodeDecodeError as error:  # bytes that are no text, where SQLite's own check sees nothing
        raise StoreError(f"{place}: {advice(f'malformed: {error}')}") from error
    except NoSuchModuleError as error:
        raise StoreError(
            f"{place}: unknown kind of database ({error}); use a file, or postgresql+psycopg://..."
        ) from None
    except ArgumentError as error:
        raise StoreError(f"{place}: no file and no URL ({error})") from None
    except ImportError as error:
        driver = repr(error.name) if error.name else "of this database"
        raise StoreError(f"{place}: the driver {driver} is missing; pip install 'mfu-optimizer[postgresql]'") from None


def advice(reason: str) -> str:
    """The sentence for one complaint.

    >>> advice("database or disk is full").partition(" (")[0]
    'the disk is full or fails'
    """
    first = " ".join(reason.split())
    for words, sentence in ADVICE:
        if any(word in first.lower() for word in words):
            return sentence.format(reason=first)
    return f"failed: {first}"

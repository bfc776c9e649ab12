"""`optimize page`: its tabs in a browser, or a copy of some as files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from optimizer.base.errors import InputError
from optimizer.commands.completion import paths, presets_of
from optimizer.commands.options import help_text
from optimizer.commands.values import COUNTS, whole_number
from optimizer.commands.waiting import waiting

NEEDED = ("starlette", "uvicorn")


@click.command(help=help_text("page"))
@click.option("--port", type=whole_number(1, 65535), metavar="N", help="Port on 127.0.0.1. [a free one]")
@click.option("--no-browser", is_flag=True, help="Print the address, open nothing.")
@click.option(
    "--learn-out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.csv",
    help="Gather what students saved in /learn there.",
)
@click.option(
    "--store",
    default="",
    metavar="FILE.db",
    shell_complete=paths,
    help="Show the jobs of this store of optimize batch, a file or a URL, in /batch.",
)
@click.option(
    "--static",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Serve nothing: write Learn, and the answers to a grid of questions, as files that open without a server.",
)
@click.option(
    "--static-models",
    default="",
    metavar="NAME,...",
    help="Models of that grid. [those of optimizer/page/offline.toml]",
    shell_complete=presets_of("model"),
)
@click.option("--static-gpus", type=COUNTS, metavar="N,...", help="GPUs of that grid. [the same]")
def page(
    *,
    port: int | None,
    no_browser: bool,
    learn_out: Path | None,
    store: str,
    static: Path | None,
    static_models: str,
    static_gpus: tuple[int, ...] | None,
) -> None:
    """Serve until Ctrl-C or SIGTERM, or write a copy."""
    if static is not None:
        if port is not None or no_browser or learn_out is not None or store:
            raise click.UsageError("--static serves nothing: leave --port, --no-browser, --learn-out and --store out")
        from optimizer.page.offline import questions, write_offline

        grid = questions([name.strip() for name in static_models.split(",") if name.strip()], static_gpus or ())
        with waiting("working out every answer"):
            size = write_offline(static, grid)
        click.echo(f"wrote {size / 1e6:.1f} MB to {static}: open {static / 'index.html'}", err=True)
        return
    if static_models or static_gpus:
        raise click.UsageError("--static-models and --static-gpus belong to --static DIR, which is missing")
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise InputError(
            f"optimize page needs {' and '.join(missing)}, which come with the extra: "
            "python -m pip install 'mfu-optimizer[page]'"
        )
    if learn_out is not None and not learn_out.absolute().parent.is_dir():
        raise InputError(f"--learn-out {learn_out} cannot be written: its folder does not exist")
    if store:
        from optimizer.sweep.store import Store

        Store(store, read_only=True).close()  # before anybody asks for it
    from optimizer.page.server import serve

    serve(port or 0, browser=not no_browser, learn_out=learn_out, store=store)

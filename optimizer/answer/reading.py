"""Read back what `optimize --json` printed; what it holds is in `saved`."""

from __future__ import annotations

import json
import sys
from typing import Any

from optimizer.answer.keys import SCHEMA_VERSION
from optimizer.answer.saved import SavedAnswer
from optimizer.base.errors import InvalidFile
from optimizer.base.files import read_stream
from optimizer.catalog import known_cluster, known_model, known_stack, load_cluster, load_model, load_stack
from optimizer.catalog.settings import Asked, with_settings
from optimizer.job.job import Job

# What the JSON of a job has itself.
OF_JOB = (
    *("gpus", "seq_len", "global_batch", "dtype", "limits", "minimize", "prefer", "try_cost"),
    *("train", "base", "optimizer", "loss", "lengths", "packing", "own_runs"),
)
WITHOUT_PLAN = ("infeasible", "unknown")  # statuses of answers that need no plan


def read_answer_file(file: str, **places: str) -> SavedAnswer:
    """The answer in a file, or in what comes through stdin for "-".

    Args:
        file: the output of `optimize --json`.
        **places: as of read_answer.

    Raises:
        InvalidFile: as of read_answer, and for a file that cannot be read.
        UnknownName: as of read_answer.
    """
    from optimizer.catalog.readers.text import decoded, readable

    if file != "-":
        return read_answer(readable(file, "give the output of optimize --json"), file, **places)
    try:
        text = decoded(read_stream(sys.stdin.buffer))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile("stdin", [f"cannot be read: {error}"]) from error
    return read_answer(text, "stdin", **places)


def read_answer(text: str, name: str = "answer", *, model: str = "", cluster: str = "", stack: str = "") -> SavedAnswer:
    """The answer in a JSON text.

    Args:
        text: The output of `optimize --json`.
        name: What messages call it.
        model: Preset or file of the model, instead of the preset, shipped or of the user's own, that the JSON names.
        cluster: Likewise of the cluster.
        stack: Likewise of the stack.

    Returns:
        What can be priced again, with the whole document.

    Raises:
        InvalidFile: With everything that is wrong.
        UnknownName: For a preset that does not exist.
    """
    from optimizer.answer.schema import SAVED_ANSWER
    from optimizer.catalog.readers.problems import validated

    document, problems = _document(text, name), list[str]()
    table = validated(SAVED_ANSWER, {"plan": None, "search": {}, **document}, problems)
    if table is None:
        raise InvalidFile(name, problems)
    asked = table.job
    parts = Asked(
        model=load_model(model) if model else known_model(asked.model),
        cluster=load_cluster(cluster) if cluster else known_cluster(asked.cluster),
        stack=load_stack(stack) if stack else known_stack(asked.stack),
    )
    parts = with_settings(parts, asked.settings)
    return SavedAnswer(
        job=Job(**vars(parts), **{name: getattr(asked, name) for name in OF_JOB}),
        **{name: getattr(table, name) for name in ("plan", "knobs", "alternatives", "formats")},
        claims=table.certificate,
        risked=table.safety is not None,
        fastest=table.safety.fastest if table.safety else None,
        **vars(table.search),
        pins=table.why_not.pins if table.why_not else "",
        document=document,
        places={key: value for key, value in (("model", model), ("cluster", cluster), ("stack", stack)) if value},
    )


def _document(text: str, name: str) -> dict[str, Any]:
    """The outermost object, of a version that can be read and with a plan in it or the reason why there is none."""
    from optimizer.catalog.readers.text import json_of

    try:
        document: Any = json_of(text, name)
    except InvalidFile as error:
        raise InvalidFile(name, [f"{error.problems[0]}; give the output of optimize --json"]) from None
    problem = ""
    if not isinstance(document, dict):
        problem = f"must be an object as optimize --json prints it, but got {json.dumps(document)[:40]}"
    elif document.get("schema_version") != SCHEMA_VERSION:
        problem = f"schema_version must be {SCHEMA_VERSION}, but got {json.dumps(document.get('schema_version'))[:40]}"
    elif document.get("plan") is None and document.get("status") not in WITHOUT_PLAN:
        problem = f"there is no plan to check: the status is {json.dumps(document.get('status'))[:40]}"
    if problem:
        raise InvalidFile(name, [problem])
    return dict(document)

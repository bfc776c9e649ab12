"""Run where ms-swift is: parse commands as `megatron sft` and `swift sft` do, hold them to its checks, print verdicts.

Reads lines of JSON with the command and its words; writes one line of JSON for each. What of Megatron needs a GPU is
absent: its arguments are held to what its `__post_init__` says of degrees, which looks for the model besides.
"""

import json
import sys
from pathlib import Path


def parsers():
    """The parser of each command, without what looks for models and GPUs."""
    sys.path.append(str(Path(sys.argv[0]).parent))
    import bridge_loads

    bridge_loads.ABSENT = ("transformer_engine", "transformer_engine_torch", "apex", "flash_attn", "mcore_bridge")
    bridge_loads.prepared()
    from swift.arguments import SftArguments
    from swift.megatron.arguments.sft_args import MegatronSftArguments
    from transformers import HfArgumentParser

    for own in (SftArguments, MegatronSftArguments):
        own.__post_init__ = lambda self: None
    return {"swift": HfArgumentParser([SftArguments]), "megatron": HfArgumentParser([MegatronSftArguments])}


def load(parser, job: dict) -> None:
    found, unknown = parser.parse_args_into_dataclasses(job["words"], return_remaining_strings=True)
    assert not unknown, unknown
    if job["command"] == "megatron":
        assert found.recompute_granularity != "selective" or found.recompute_method is None
        ends = (found.decoder_first_pipeline_num_layers, found.decoder_last_pipeline_num_layers)
        assert found.pipeline_model_parallel_size > 1 or ends == (None, None)
        assert not any(" " in module for module in found.recompute_modules)


def main() -> None:
    own = parsers()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            load(own[job["command"]], job)
            verdict = ""
        except BaseException as error:  # a parser ends the program
            verdict = f"{type(error).__name__}: {error}"
        print("\n" + json.dumps({"job": job, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()

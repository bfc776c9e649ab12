"""Run where a source of Megatron-LM is: parse and validate arguments as pretrain_gpt.py does, print verdicts.

Reads lines of JSON with a folder of launch files and its GPUs; writes one line of JSON for each.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import shlex
import sys
import typing
import warnings
from pathlib import Path

RUN = (
    "--tokenizer-type NullTokenizer --mock-data --train-iters 10 --lr 1e-4 --save /tmp/x --load /tmp/x"
    " --save-interval 500 --exit-signal-handler --log-interval 10 --log-throughput"
)


def prepared():
    """The parser's module with libraries that need a GPU told to be there; validation computes nothing."""
    if not hasattr(typing, "override"):
        import typing_extensions

        typing.override = typing_extensions.override
    import torch

    class Properties:
        major, minor, multi_processor_count, total_memory, name = 9, 0, 132, 80 << 30, "NVIDIA H100"

    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: Properties()
    import megatron.core.models.common.embeddings.rope_utils as rope
    import megatron.core.transformer.transformer_config as transformer
    import megatron.core.utils as utils
    from megatron.training import arguments

    rope.fused_apply_rotary_pos_emb = rope.fused_apply_rotary_pos_emb_thd = rope.fused_mla_rope_inplace = object()
    for module in (utils, transformer, arguments):
        if hasattr(module, "is_te_min_version"):
            module.is_te_min_version = lambda *_, **__: True
    # One parser for all: to make it takes thirty times as long as to use it.
    parser = arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    arguments.add_megatron_arguments = lambda _: parser
    return arguments


def load(arguments, job: dict) -> None:
    try:
        from megatron.training.arguments import core_transformer_config_from_args as config_of
    except ImportError:
        from megatron.training.argument_utils import core_transformer_config_from_args as config_of
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ |= {"RANK": "0", "WORLD_SIZE": str(job["gpus"]), "LOCAL_RANK": "0", **job["environment"]}
    text = (Path(job["folder"]) / "megatron.args").read_text()
    sys.argv = ["pretrain_gpt.py", *shlex.split(text), *shlex.split(RUN)]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            args = arguments.parse_args()
            arguments.validate_args(args)
            config = config_of(args)
    except SystemExit:
        raise ValueError(said.getvalue().strip().split("\n")[-1]) from None
    ranks = args.tensor_model_parallel_size * args.pipeline_model_parallel_size * args.context_parallel_size
    assert args.data_parallel_size * ranks == job["gpus"]
    assert config.attention_dropout == job["dropout"]


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    arguments = prepared()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            load(arguments, job)
            verdict = ""
        except BaseException as error:  # a parser ends the program
            verdict = f"{type(error).__name__}: {error}"
        print("\n" + json.dumps({"job": job, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()

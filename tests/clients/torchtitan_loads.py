"""Run inside an environment with one release of torchtitan: load every config named in a list of jobs, print verdicts.

Reads lines of JSON with folder, module or TOML, GPUs, layers, width; writes one line of JSON for each.
"""

import dataclasses
import importlib
import json
import logging
import os
import sys
import types


def without_gpu() -> None:
    """Kernels that only exist with a GPU are never called here, and meshes are of processors."""
    import torch

    torch._utils._get_available_device_type = lambda: "cpu"
    from torchtitan.tools import utils

    torch.cuda.get_device_capability = lambda *_: (9, 0)
    utils.has_cuda_capability = lambda *_: True
    try:
        import triton  # noqa: F401
    except ImportError:
        for name in ("triton", "triton.language"):
            module = types.ModuleType(name)
            module.jit = module.autotune = lambda *a, **k: a[0] if a else (lambda f: f)
            module.__getattr__ = lambda _: object
            sys.modules[name] = module
        sys.modules["triton"].language = sys.modules["triton.language"]


def world(parallelism, gpus: int):
    from torchtitan.distributed import ParallelDims

    names = {field.name for field in dataclasses.fields(ParallelDims)}
    values = {
        "dp_replicate": parallelism.data_parallel_replicate_degree,
        "dp_shard": parallelism.data_parallel_shard_degree,
        "cp": parallelism.context_parallel_degree,
        "tp": parallelism.tensor_parallel_degree,
        "pp": parallelism.pipeline_parallel_degree,
        "ep": parallelism.expert_parallel_degree,
        "etp": getattr(parallelism, "expert_tensor_parallel_degree", 1),
        "world_size": gpus,
    }
    return ParallelDims(**{name: value for name, value in values.items() if name in names})


def schedule(parallelism, layers: int) -> None:
    from torch.distributed.pipelining.schedules import get_schedule_class

    get_schedule_class(parallelism.pipeline_parallel_schedule)
    stages = parallelism.module_fqns_per_model_part
    if stages is None:  # torchtitan splits the layers
        return
    assert len(stages) % parallelism.pipeline_parallel_degree == 0
    names = [name for part in stages for name in part]
    assert sum(name.startswith("layers.") for name in names) == layers


def split(config, family, job: dict) -> None:
    """Split the model on the meta device as trainers of releases with TOML do, over processes that send nothing."""
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=job["gpus"])
    dims, training = world(config.parallelism, job["gpus"]), config.training
    dims.build_mesh()
    replicas = dims.dp_replicate * dims.dp_shard
    assert training.global_batch_size % (training.local_batch_size * replicas) == 0
    arguments = dataclasses.replace(family.model_args[config.model.flavor])
    arguments.update_from_config(config)
    with torch.device("meta"):
        model = family.model_cls(arguments)
    if not dims.pp_enabled:
        family.parallelize_fn(model, dims, config)
        return
    assert family.pipelining_fn, f"{config.model.name} does not support pipelining"
    family.pipelining_fn(model, dims, config, torch.device("cpu"), arguments, family.parallelize_fn, lambda *_: None)


def load(job: dict) -> None:
    from torchtitan.config import ConfigManager

    if "toml" in job:
        config = ConfigManager().parse_args([f"--job.config_file={job['toml']}"])
        family = importlib.import_module(f"torchtitan.models.{config.model.name}").get_train_spec()
        model = family.model_args[config.model.flavor]
        layers, width = model.n_layers, model.dim
        split(config, family, job)
    else:
        sys.path.insert(0, job["folder"])
        sys.modules.pop(job["module"], None)
        try:
            config = ConfigManager().parse_args(["--module", job["module"], "--config", job["function"]])
        finally:
            sys.path.remove(job["folder"])
        model = config.model_spec.model
        model.update_from_config(config=config)  # as the trainer does: what it cannot shard so is refused there
        layers, width = len(model.layers), model.dim
    assert (layers, width) == (job["layers"], job["hidden"]), f"{layers} layers of {width}"
    parallelism = config.parallelism
    world(parallelism, job["gpus"])
    if parallelism.pipeline_parallel_degree > 1:
        schedule(parallelism, layers)


def main() -> None:
    logging.disable(logging.CRITICAL)
    os.environ.setdefault("WORLD_SIZE", "1")
    without_gpu()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            load(job)
            verdict = ""
        except BaseException as error:  # a parser ends the program
            verdict = f"{type(error).__name__}: {error}"
        print("\n" + json.dumps({"job": job, "verdict": verdict}), flush=True)


if __name__ == "__main__":
    main()

"""What a plan costs: a breakdown of every second and byte, for many plans at once or for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.objectives.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Costs of many plans, one entry per plan in each array."""

    time: Mapping[str, FloatArray]  # by term; the terms add up to `step_time` [s]
    memory: Mapping[str, FloatArray]  # by term, of the stage with the peak; the terms add up to `reserved` [B]
    step_time: FloatArray
    reserved: FloatArray  # peak over the pipeline stages [B]
    allocated: FloatArray  # the same without fragments [B]
    mfu: FloatArray
    hfu: FloatArray
    bubble: FloatArray
    overlappable: FloatArray

    def estimate(self, index: int, tokens: int, gpus: int, model_flops: float) -> Estimate:
        """The breakdown of one of the plans."""
        step = float(self.step_time[index])
        return Estimate(
            step_time=step,
            mfu=float(self.mfu[index]),
            hfu=float(self.hfu[index]),
            flops_per_gpu=model_flops / step / gpus,
            tokens_per_s_per_gpu=tokens / step / gpus,
            bubble_fraction=float(self.bubble[index]),
            time={name: float(value[index]) for name, value in self.time.items()},
            memory={name: float(value[index]) for name, value in self.memory.items()},
            reserved=float(self.reserved[index]),
            allocated=float(self.allocated[index]),
            all_hidden=step - sum(float(v[index]) for name, v in self.time.items() if name.endswith("_communication")),
            none_hidden=step + float(self.overlappable[index]),
        )


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The costs of one plan. Times [s], memory [B], rates per GPU; `time` adds up to `step_time`."""

    step_time: float
    mfu: float
    hfu: float
    flops_per_gpu: float
    tokens_per_s_per_gpu: float
    bubble_fraction: float
    time: Mapping[str, float]
    memory: Mapping[str, float]
    reserved: float
    allocated: float
    all_hidden: float
    none_hidden: float

"""What the programs of launches are told, and what they do by themselves."""

from __future__ import annotations

PLACING = ("Megatron-LM", "Megatron-Bridge", "Primus")  # are told where layers lie
OFFLOADING = ("Megatron-LM", "Megatron-Bridge", "Primus")  # their optimizer may lie on the host in part
SEQUENCE_PARALLEL = ("torchtitan", "MaxText")  # split sequences wherever they split tensors
BUCKETED = ("Megatron-LM", "Megatron-Bridge", "Primus", "DeepSpeed")  # are told how large a bucket is

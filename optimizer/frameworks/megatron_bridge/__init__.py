"""Megatron-Bridge."""

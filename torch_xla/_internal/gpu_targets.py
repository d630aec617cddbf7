"""What XLA's GPU compiler has to know of GPUs that are not here.

The format is OpenXLA's `stream_executor.GpuTargetConfigProto` (xla/stream_executor/
device_description.proto) in protobuf's text format; the numbers are those of NVIDIA's architecture
white papers and of the CUDA C++ programming guide's table of compute capabilities.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

GPUS_PER_HOST = 8

_COMMON = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 48 << 10,
    "threads_per_core_limit": 2048,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 2**16 - 1,
    "block_dim_limit_z": 2**16 - 1,
    "registers_per_core_limit": 1 << 16,
    "registers_per_block_limit": 1 << 16,
}

# Bytes, bytes a second, GHz; compute capability (major, minor).
KINDS: dict[str, dict] = {
    "a100": {
        "name": "NVIDIA A100-SXM4-80GB",
        "capability": (8, 0),
        "shared_memory_per_core": 164 << 10,
        "shared_memory_per_block_optin": 163 << 10,
        "core_count": 108,
        "fpus_per_core": 64,
        "memory_bandwidth": 2_039_000_000_000,
        "l2_cache_size": 40 << 20,
        "clock_rate_ghz": 1.41,
        "device_memory_size": 80 * 10**9,
    },
    "h100": {
        "name": "NVIDIA H100 80GB HBM3",
        "capability": (9, 0),
        "shared_memory_per_core": 228 << 10,
        "shared_memory_per_block_optin": 227 << 10,
        "core_count": 132,
        "fpus_per_core": 128,
        "memory_bandwidth": 3_352_000_000_000,
        "l2_cache_size": 50 << 20,
        "clock_rate_ghz": 1.98,
        "device_memory_size": 80 * 10**9,
    },
}
# The same processor with more memory.
KINDS["h200"] = {
    **KINDS["h100"],
    "name": "NVIDIA H200",
    "memory_bandwidth": 4_800_000_000_000,
    "device_memory_size": 141 * 10**9,
}


def description(kind: str) -> str:
    """The text of a kind of GPU.

    Raises:
        ValueError: for a kind that is not built in.
    """
    if kind not in KINDS:
        raise ValueError(
            f"{kind!r} needs a target_config that describes the GPU; built in are "
            + ", ".join(sorted(KINDS))
        )
    facts = dict(KINDS[kind])
    name, (major, minor) = facts.pop("name"), facts.pop("capability")
    numbers = " ".join(f"{key}: {value}" for key, value in {**_COMMON, **facts}.items())
    return (
        f"gpu_device_info {{ {numbers} "
        f"cuda_compute_capability {{ major: {major} minor: {minor} }} }}\n"
        'platform_name: "CUDA"\n'
        "dnn_version_info { major: 9 minor: 8 }\n"
        "runtime_version { major: 12 minor: 8 }\n"
        f'device_description_str: "{name}"\n'
    )


def memory_of(target_config: str) -> int | None:
    """Bytes of the GPU that a description is of."""
    match = re.search(r"\bdevice_memory_size\s*:\s*(\d+)", target_config)
    return int(match[1]) if match else None


def slices(sizes: Sequence[int]) -> str:
    """The plugin's spelling of GPUs, or of hosts and the GPUs of each: slices x hosts x GPUs.

    Raises:
        ValueError: for more than three sizes, or GPUs that do not fill their hosts.
    """
    if len(sizes) == 1:
        (gpus,) = sizes
        if gpus <= GPUS_PER_HOST:
            return f"1x1x{gpus}"
        if gpus % GPUS_PER_HOST:
            raise ValueError(
                f"{gpus} GPUs do not fill hosts of {GPUS_PER_HOST}: say hosts x GPUs of each"
            )
        return f"1x{gpus // GPUS_PER_HOST}x{GPUS_PER_HOST}"
    if len(sizes) > 3:
        raise ValueError("GPUs are slices x hosts x GPUs at most, not " + "x".join(map(str, sizes)))
    return "x".join(map(str, [1] * (3 - len(sizes)) + list(sizes)))

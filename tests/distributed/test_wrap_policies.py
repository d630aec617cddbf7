"""Which modules FSDP's policies wrap."""

import functools

import pytest
from torch import nn

from torch_xla.distributed.fsdp.wrap import (
    always_wrap_policy,
    lambda_auto_wrap_policy,
    recursive_wrap,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)


class Wrapper(nn.Module):
    def __init__(self, module, **kwargs):
        super().__init__()
        self.module = module
        self.kwargs = kwargs


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 10, bias=False)
        self.second = nn.Linear(10, 20, bias=False)


def model():
    return nn.ModuleDict(
        {
            "blocks": nn.ModuleList([Block(), Block()]),
            "attention": nn.MultiheadAttention(8, 2),
            "head": nn.Linear(10, 4, bias=False),
        }
    )


def wrapped(root, policy, **kwargs):
    """Names of what is wrapped, without the wrappers' own part of them."""
    arguments = {"ignored_modules": (), "ignored_params": (), **kwargs}
    root, count = recursive_wrap(root, policy, Wrapper, **arguments)
    names = [
        ".".join(part for part in name.split(".") if part != "module")
        for name, module in root.named_modules()
        if isinstance(module, Wrapper)
    ]
    return names, count


def test_transformer_layers():
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    assert wrapped(model(), policy) == (["blocks.0", "blocks.1"], 600)


def test_by_size():
    # Of a block's 300 parameters none are in a part with 300 of its own; a list is not wrapped.
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=300)
    assert wrapped(model(), policy) == (["blocks.0", "blocks.1"], 600)
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=200)
    names, _ = wrapped(model(), policy)
    assert names == ["blocks.0.second", "blocks.1.second"]
    policy = functools.partial(
        size_based_auto_wrap_policy,
        min_num_params=300,
        exclude_wrap_modules={Block, nn.ModuleDict},
    )
    assert wrapped(model(), policy)[0] == ["blocks"]
    policy = functools.partial(
        size_based_auto_wrap_policy, min_num_params=60, force_leaf_modules=set()
    )
    assert "attention" not in names and "attention.out_proj" in wrapped(model(), policy)[0]


def test_by_a_function():
    policy = functools.partial(
        lambda_auto_wrap_policy, lambda_fn=lambda module: type(module) is nn.Linear
    )
    names, _ = wrapped(model(), policy)
    assert names == [
        "blocks.0.first",
        "blocks.0.second",
        "blocks.1.first",
        "blocks.1.second",
        "head",
    ]


def test_every_module():
    names, count = wrapped(Block(), always_wrap_policy)
    assert names == ["", "first", "second"] and count == 300
    assert wrapped(Block(), always_wrap_policy, only_wrap_children=True)[0] == ["first", "second"]


def test_what_is_left_alone():
    root = model()
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    names, count = wrapped(root, policy, ignored_modules=[root["blocks"][0]])
    assert (names, count) == (["blocks.1"], 300)
    root = model()
    parameters = [root["blocks"][0].first.weight]
    assert wrapped(root, policy, ignored_params=parameters)[1] == 500


def test_wrappers_get_arguments():
    root, _ = recursive_wrap(Block(), always_wrap_policy, Wrapper, (), (), mesh="m")
    assert root.kwargs == {"mesh": "m"}


@pytest.mark.parametrize("recurse", [True, False])
def test_policies_take_what_they_are_called_with(recurse):
    arguments = {"module": nn.Linear(2, 2), "recurse": recurse, "unwrapped_params": 6}
    assert always_wrap_policy(**arguments)
    assert size_based_auto_wrap_policy(**arguments, min_num_params=6)
    assert not size_based_auto_wrap_policy(**arguments, min_num_params=7)
    assert transformer_auto_wrap_policy(**arguments, transformer_layer_cls=[nn.Linear])

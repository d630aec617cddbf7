"""csrc/pjrt/abi.h and ffi_abi.h against the layout that `pypjrt` ships as data.

The compiler does the comparing: one `static_assert` for each size, offset and slot.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[3] / "csrc"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))

oracle = pytest.importorskip("pypjrt._abi.pjrt_0_114")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")

PJRT = "torch_xla::pjrt::abi"
FFI = "torch_xla::pjrt::ffi_abi"
HEAD = ("struct_size", "extension_start")


def structs(header: str) -> dict[str, list[str]]:
    """Members of each struct of `header`, by struct name, without the leading Head."""
    text = re.sub(r"//.*", "", (CSRC / header).read_text())
    result = {}
    for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.M | re.S):
        body = body.replace("Head head;", "").replace("union {", "").replace("};", ";")
        members = []
        for statement in filter(str.strip, body.split(";")):
            pointer = re.search(r"\(\*(\w+)\)", statement)
            last = re.search(r"(\w+)(?:\[\d+\])?\s*$", statement)
            members.append(pointer.group(1) if pointer else last.group(1))
        result[name] = members
    return result


def compiles(assertions: list[str], header: str, namespace: str) -> None:
    lines = (f"static_assert({assertion});" for assertion in assertions)
    source = "\n".join([f'#include "{header}"', f"using namespace {namespace};", *lines])
    options = ["-std=c++20", "-fsyntax-only", "-Wno-invalid-offsetof", f"-I{CSRC}", "-xc++", "-"]
    done = subprocess.run(
        [COMPILER, *options], input=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def offset(struct: type[ctypes.Structure], member: str) -> int:
    return getattr(struct, member).offset


def layout_assertions(header: str, prefix: str, skip: set[str]) -> list[str]:
    result = []
    for name, members in structs(header).items():
        if name in skip:
            continue
        theirs = getattr(oracle, prefix + name)
        result += [f"offsetof({name}, {m}) == {offset(theirs, m)}" for m in members]
    return result


def test_members_stand_where_plugins_expect_them() -> None:
    skip = {"Head", "Version", "ExtensionBase", "Api"}
    assertions = layout_assertions("pjrt/abi.h", "PJRT_", skip)
    assert len(assertions) > 200
    compiles(assertions, "pjrt/abi.h", PJRT)


def test_ffi_members_stand_where_plugins_expect_them() -> None:
    skip = {"Head", "ExtensionBase", "Api"}
    assertions = layout_assertions("pjrt/ffi_abi.h", "XLA_FFI_", skip)
    assert len(assertions) > 30
    compiles(assertions, "pjrt/ffi_abi.h", FFI)


def test_struct_sizes() -> None:
    """No struct may be cut short: plugins refuse those that end before they expect it."""
    sizes = {
        name: getattr(oracle, f"PJRT_{name}_STRUCT_SIZE", None)
        for name in structs("pjrt/abi.h")
        if name != "Api"
    }
    assertions = [f"kStructSize<{name}> == {size}" for name, size in sizes.items() if size]
    assert len(assertions) > 60
    compiles(assertions, "pjrt/abi.h", PJRT)


def test_slots_of_the_function_table() -> None:
    slots = [m for m in structs("pjrt/abi.h")["Api"] if not m.startswith("unused_")]
    functions = [m for m in slots if m not in (*HEAD, "pjrt_api_version")]
    assert len(functions) > 70
    offsets = {f: offset(oracle.PJRT_Api, f"PJRT_{f}") for f in functions}
    assertions = [f"offsetof(Api, {f}) == {where}" for f, where in offsets.items()]
    compiles(assertions, "pjrt/abi.h", PJRT)


def test_slots_of_the_function_table_of_handlers() -> None:
    functions = [m for m in structs("pjrt/ffi_abi.h")["Api"] if m[0].isupper()]
    assert "ThreadPool_Schedule" in functions
    offsets = {f: offset(oracle.XLA_FFI_Api, f"XLA_FFI_{f}") for f in functions}
    assertions = [f"offsetof(Api, {f}) == {where}" for f, where in offsets.items()]
    compiles(assertions, "pjrt/ffi_abi.h", FFI)


def test_values_of_enums() -> None:
    types = dict(re.findall(r"k(\w+) = (\d+)", (CSRC / "pjrt/buffer_type.h").read_text()))
    for name, value in types.items():
        assert int(value) == getattr(oracle, f"PJRT_Buffer_Type_{name.upper()}"), name
    codes = re.findall(r"k(\w+) = (\d+)", (CSRC / "pjrt/error.h").read_text())
    for name, value in codes:
        spelled = re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
        assert int(value) == getattr(oracle, f"PJRT_Error_Code_{spelled}"), name

"""Prints what a C++ build needs to know about the installed torch, one KEY=value a line."""

import torch
from torch.utils.cpp_extension import TORCH_LIB_PATH, include_paths

print(f"VERSION={torch.__version__}")
print(f"GIT_REV={torch.version.git_version}")
print(f"CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}")
print(f"LIB_DIR={TORCH_LIB_PATH}")
print(f"INCLUDE_DIRS={';'.join(include_paths())}")

#!/usr/bin/env bash
# check_machine.sh PYTHON: says in one message what this machine lacks for a build, and how to get it.
set -uo pipefail
python=$1
missing=()
packages=()

lacks() {  # lacks WHAT PACKAGE...
  missing+=("$1")
  packages+=("${@:2}")
}

if ! command -v "$python" >/dev/null; then
  lacks "Python 3.10 or newer (looked for '$python')" python3 python3-dev python3-venv
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  lacks "Python 3.10 or newer ('$python' is $("$python" --version 2>&1)); try make PYTHON=python3.12"
else
  "$python" -c 'import venv, ensurepip' 2>/dev/null || lacks "Python's venv and ensurepip" python3-venv
  "$python" -c 'import os, sysconfig as s, sys
sys.exit(not os.path.exists(os.path.join(s.get_path("include"), "Python.h")))' ||
    lacks "Python's C headers (Python.h)" python3-dev
fi

compiler=${CXX:-c++}
if ! command -v "$compiler" >/dev/null; then
  lacks "a C++20 compiler (looked for '$compiler')" g++
elif ! echo '#include <span>' | "$compiler" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
  lacks "a compiler that knows C++20 ('$compiler' does not; GCC 11 or Clang 14 would)" g++
fi

if ((${#missing[@]})); then
  printf 'To build torch_xla, this machine lacks:\n' >&2
  printf '  - %s\n' "${missing[@]}" >&2
  if ((${#packages[@]})); then
    printf 'On Debian or Ubuntu:\n  sudo apt-get install %s\n' "${packages[*]}" >&2
  fi
  exit 1
fi

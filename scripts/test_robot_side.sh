#!/usr/bin/env bash
# Tests what runs on a robot in an environment of its own, without torch and without a simulator.
#
# Arguments: version of Python, 3.10 to 3.13, or its path; extras, by commas ("" for the base alone); tests, if not all.
# What needs torch, a simulator, or an extra that is left out is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
version="${1:?which Python? For example: scripts/test_robot_side.sh 3.10}"
extras="${2-robot,signing,data,corrections,serve,leapp,unitree,ros}"

python="$version"
if [[ "$version" =~ ^3\.[0-9]+$ ]]; then
    python="python$version"
    if ! "$python" --version >/dev/null 2>&1; then  # One of pyenv's that is not on PATH.
        PYENV_VERSION="$(pyenv versions --bare 2>/dev/null | grep "^${version/./\\.}\." | tail -1)" || true
        export PYENV_VERSION
    fi
fi
if ! "$python" --version >/dev/null 2>&1; then
    echo "There is no $python here; name another one or its path." >&2
    exit 1
fi
version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
venv=".venv-robot-$version${extras:+-extras}"

say_size() { echo "$1, Python $version: $(du -sm "$venv" | cut -f1) MB"; }

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then "$python" -m venv --clear "$venv"; fi
unset PYENV_VERSION
# A wheel as on a robot: the tests run what is installed, not the files beside them.
"$venv/bin/python" -m pip install --quiet --no-compile --force-reinstall --no-deps .
"$venv/bin/python" -m pip install --quiet --no-compile -c constraints-ros.txt "gantry-rl${extras:+[$extras]}"
if ! "$venv/bin/python" -c 'import pytest' 2>/dev/null; then say_size "installed with ${extras:-no extra}"; fi
# What only tests need: networks, other rotations and, where keys can be made, an SSH server.
tools=(pytest pytest-timeout pytest-xdist onnx scipy)
if [[ ",$extras," == *,signing,* ]]; then tools+=(asyncssh); fi
"$venv/bin/python" -m pip install --quiet --no-compile "${tools[@]}"
"$venv/bin/python" - <<'END'
import importlib.util, sys
found = [name for name in ("torch", "mujoco", "mjlab") if importlib.util.find_spec(name)]
sys.exit(f"{sys.prefix} holds {', '.join(found)}, which no robot has; remove it and start again." if found else 0)
END
tests=(tests/hardware tests/mapping tests/deploy tests/ros)
if [ $# -gt 2 ]; then tests=("${@:3}"); fi
exec "$venv/bin/python" -m pytest -n 2 --dist loadfile -m "not slow and not soak" -rs \
    --ignore=tests/mapping/learn "${tests[@]}"

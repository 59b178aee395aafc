#!/usr/bin/env bash
# Installs UniLab and EnvPool beside the project, for scripts/measure/peers/compare.py, each in an environment of its own.
#
# UniLab fetches the meshes of its robots from a hub. They are only looked at: small tetrahedra take their place, and no
# network is needed to run it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=".venv-peers"

.venv/bin/python -m venv --clear "$venv"
site="$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')"
# Through site.addsitedir, as in scripts/test_isaaclab.sh: what both need is installed once.
own="$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')"
echo "import site; site.addsitedir('$own')" >"$site/project.pth"
# Not by UniLab's own list of requirements: it brings trackers and viewers that nothing here uses.
"$venv/bin/python" -m pip install --quiet --no-compile --no-deps \
    unilab==1.5.2 unisim-core==2.2.0 mjbatch-uni==0.2.5 hydra-core==1.3.8 lark==1.3.1
robot="$site/unilab/assets/robots/go2"
mkdir -p "$robot/assets"
grep -oh 'file="[^"]*"' "$robot"/*.xml | cut -d'"' -f2 | sort -u | while read -r name; do
    printf '%s\n' 'v 0 0 0' 'v 0.01 0 0' 'v 0 0.01 0' 'v 0 0 0.01' 'f 1 3 2' 'f 1 2 4' 'f 1 4 3' 'f 2 3 4' \
        >"$robot/assets/$name"
done
echo "UniLab is installed in $venv."

.venv/bin/python -m venv --clear .venv-envpool
.venv-envpool/bin/python -m pip install --quiet --no-compile envpool==1.2.5
echo "EnvPool is installed in .venv-envpool."

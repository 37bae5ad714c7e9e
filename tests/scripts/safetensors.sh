#!/bin/sh
# A file that Quern saved (examples/train.c) read by the Python packages `safetensors` and, where it is there, `torch`, which
# loads it into its own layers. Skipped, loudly, without them. Usage: safetensors.sh BUILD_FOLDER
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${QUERN_PYTHON:-python3}
if ! "$python" -c 'import numpy, safetensors' 2>/dev/null; then
    echo "note: skipped safetensors: no Python with numpy and safetensors here (QUERN_PYTHON names one)"
    echo "0 passed, 0 failed"
    exit 0
fi
export QUERN_CACHE="$work/cache"
sanitize=$(sed -n 's/^QUERN_SANITIZE:STRING=\(.*\)$/\1/p' "$build/CMakeCache.txt")
passed=0
failed=0
if ! cc -std=c11 -I"$root/include" ${sanitize:+-fsanitize=$sanitize} "$root/examples/train.c" -L"$build" -Wl,-rpath,"$build" -lquern -lm -o "$work/train" ||
    ! "$work/train" "$work/rings.safetensors" >"$work/log" 2>&1; then
    cat "$work/log"
    echo "FAILED examples/train.c"
    echo "0 passed, 1 failed"
    exit 1
fi
cat >"$work/read.py" <<'PYTHON'
import sys
from safetensors import safe_open
from safetensors.numpy import load_file

tensors = load_file(sys.argv[1])
assert tensors["in.weight"].shape == (32, 2) and tensors["in.weight"].dtype == "float32", tensors["in.weight"].shape
assert tensors["optimizer/steps"] == 120.0
assert tensors["optimizer/out.weight/exp_avg"].shape == (3, 32)
with safe_open(sys.argv[1], "np") as file:
    assert file.metadata() == {"position": "120"}, file.metadata()
try:
    import torch
    from safetensors.torch import load_file as load_torch
except ImportError:
    print("note: skipped safetensors: no torch, its load_state_dict was left out")
    sys.exit(0)
net = torch.nn.ModuleDict({"in": torch.nn.Linear(2, 32), "out": torch.nn.Linear(32, 3)})
state = {k: v for k, v in load_torch(sys.argv[1]).items() if "/" not in k}
net.load_state_dict(state)
y = net["out"](torch.nn.functional.gelu(net["in"](torch.tensor([[0.5, 0.0], [1.5, 0.0], [0.0, 2.5]]))))
assert y.argmax(1).tolist() == [0, 1, 2], y
PYTHON
if "$python" "$work/read.py" "$work/rings.safetensors"; then passed=1; else
    failed=1
    echo "FAILED reading our file in Python"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

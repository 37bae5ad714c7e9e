#!/bin/sh
# The operations of tensors against NumPy and PyTorch: test_tensor_matrix writes inputs and results as .npy files, and
# tensor_peers.py computes them once more. Skipped, loudly, where NumPy is not installed. PYTHON names the interpreter,
# QUERN_PEERS_DEVICE the device (ref).
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-build}" && pwd)
python=${PYTHON:-python3}
if ! "$python" -c 'import numpy' 2>/dev/null; then
    echo "note: skipped: the tensor level against NumPy and PyTorch, which are not installed (pip install numpy torch)"
    echo "0 passed, 0 failed"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! QUERN_PEERS=$work "$build/tests/test_tensor_matrix" peers >"$work.log" 2>&1; then
    cat "$work.log"
    rm -f "$work.log"
    echo "0 passed, 1 failed"
    exit 1
fi
rm -f "$work.log"
"$python" "$root/tests/scripts/tensor_peers.py" "$work"

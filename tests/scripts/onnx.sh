#!/bin/sh
# `quern export dlrm`: onnx.checker takes the file, and onnxruntime gives the probabilities of `quern predict`, for each
# interaction and mapping, with missing fields, unknown tokens and tables beside the model. Usage: tests/scripts/onnx.sh BUILD_FOLDER
# PYTHON names the interpreter, one with numpy, onnx and onnxruntime (python3 otherwise).
build=$(cd "${1:-build}" && pwd)
quern="$build/quern"
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0
failed=0
good() { passed=$((passed + 1)); }
bad() {
    failed=$((failed + 1))
    echo "FAILED $1"
}

# Rows of a log: those of made data, a tenth of the tokens replaced by ones that no training saw.
"$quern" data make --rows 300 --seed 5 -o rows.parquet --nulls --codec none >/dev/null
"$quern" data head rows.parquet --rows 300 >head.txt
cat >rows.py <<'END'
import json, random
rows, random_numbers = [], random.Random(1)
for line in open("head.txt"):
    words = line.split()
    if not words: continue
    if words[0] == "row": rows.append(([], []))
    elif words[0] == "counts": rows[-1][0].extend(words[1:])
    elif words[0] != "label": rows[-1][1].extend(words[1:] if words[0] == "tokens" else words)
with open("rows.tsv", "w") as out:
    for counts, tokens in rows:
        counts = [c if c.lstrip("-").isdigit() else "" for c in counts]
        tokens = [t if len(t) == 8 else "" for t in tokens]
        tokens = ["%08x" % random_numbers.getrandbits(32) if random_numbers.random() < 0.1 else t for t in tokens]
        assert len(counts) == 13 and len(tokens) == 26, (counts, tokens)
        out.write("\t".join(["0"] + counts + tokens) + "\n")
END
cat >compare.py <<'END'
import sys, numpy, onnx, onnxruntime
path, csv = sys.argv[1:]
onnx.checker.check_model(path, full_check=True)
model = onnx.load(path, load_external_data=False)
assert {o.domain: o.version for o in model.opset_import}[""] == 17
counts, tokens = [], []
for line in open("rows.tsv"):
    f = line.rstrip("\n").split("\t")
    counts.append([float(x) if x else float("nan") for x in f[1:14]])
    tokens.append([int(x, 16) if x else -1 for x in f[14:]])
session = onnxruntime.InferenceSession(path)
got = session.run(["probability"], {"counts": numpy.array(counts, "f4"), "tokens": numpy.array(tokens, "i8")})[0]
wanted = numpy.array([float(x) for x in open(csv).read().split()[1:]])
worst = abs(got - wanted).max()
assert got.shape == wanted.shape == (300,) and worst < 2e-6, (got.shape, wanted.shape, worst)
assert wanted.max() - wanted.min() > 0.05
END
have_python=yes
"$python" -c 'import numpy, onnx, onnxruntime' 2>/dev/null || have_python=
"$python" rows.py 2>/dev/null || python3 rows.py || bad "rows of a log"

one() { # name, options of training
    name=$1
    shift
    "$quern" train dlrm --rows 20k --tokens 3000 --device cpu --batch 256 --validate 0 --out "$name" "$@" >log 2>&1 || { bad "$name: training"; cat log; return; }
    "$quern" export dlrm "$name" -o "$name.onnx" >log 2>&1 && good || { bad "$name: export"; cat log; return; }
    "$quern" predict "$name" rows.tsv --device cpu -o "$name.csv" >log 2>&1 || { bad "$name: predict"; cat log; return; }
    [ -s "$name.onnx.data" ] && good || bad "$name: large tables are not beside the model"
    "$quern" show "$name.onnx" >"$name.svg" 2>log && grep -q '</svg>' "$name.svg" && grep -q '>probability</text>' "$name.svg" && good ||
        { bad "$name: picture"; cat log; }
    if "$quern" show "$name.onnx" tower >log 2>&1 || "$quern" show "$name.onnx" --stage cuda >log 2>&1; then bad "$name: a part that is not there is shown"; else good; fi
    [ -n "$have_python" ] || return
    "$python" compare.py "$name.onnx" "$name.csv" >log 2>&1 && good || { bad "$name: onnxruntime"; tail -5 log; }
}
one dot_exact
one dot_modulus --map modulus --tables bf16
one cat --interaction cat
{
    printf '{"interaction": "outer", "dense_mlp": {"hidden_layer_sizes": [8], "output_size": 4}, "prediction_hidden_sizes": [8],'
    printf ' "sparse_embedding_sizes": {"SPARSE_0": 4'
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do printf ', "SPARSE_%d": 4' $i; done
    echo '}}'
} >outer.json
one outer --config outer.json
[ -n "$have_python" ] || echo "SKIPPED onnx.checker and onnxruntime: $python has no numpy, onnx and onnxruntime"
"$quern" export dlrm nowhere -o x.onnx >log 2>&1
[ $? = 2 ] && grep -q "there is no checkpoint in nowhere" log && good || bad "export of nothing"
"$quern" export dlrm dot_exact >log 2>&1
[ $? = 2 ] && grep -q "where to?" log && good || bad "export to nowhere"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

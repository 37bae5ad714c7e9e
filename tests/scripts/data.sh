#!/bin/sh
# `quern data`: rows shown exactly, conversions that lose nothing, metadata that Python's JSON reads, errors by their words.
# Usage: tests/scripts/data.sh BUILD_FOLDER
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-build}" && pwd)
quern="$build/quern"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0
failed=0
try() { # exit code, words...
    wanted=$1
    shift
    call="quern $*"
    "$quern" "$@" >out 2>err </dev/null
    code=$?
    if [ "$code" = "$wanted" ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $call: exit $code, not $wanted"
        cat out err
    fi
}
says() { # out or err, text
    if grep -qF -- "$2" "$1"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $call: std$1 lacks: $2"
        cat "$1"
    fi
}
same() { # what, file, file
    if cmp -s "$2" "$3"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED $1: $2 and $3 differ"
    fi
}

snappy=yes
if "$quern" data head "$root/tests/data/pandas.parquet" 2>&1 | grep -q 'which is not here'; then
    snappy=no
    echo "note: skipped files compressed with Snappy: the library is not here"
fi
if [ $snappy = yes ]; then
try 0 data head "$root/tests/data/pandas.parquet" --rows 1
cat >wanted <<'END'
row 0
  label   0
  counts  5 110 0 16 0 1 0 14 7 1 0 306 0
  tokens  62770d79 e21f5d58 afea442f 945c7fcf 38b02748 6fcd6dcb 3580aa21 28808903 46dedfa6 2e027dc1 0c7c4231 95981d1f 00c5ffb7
          be4ee537 8a0b74cc 4cdc3efa d20856aa b8170bba 9512c20b c38e2f28 14f65a5d 25b1b089 d7c1fc0b 7caf609c 30436bfc ed10571d
END
same "the first row" out wanted
fi

# A log, its gzip file and what they become hold the same rows.
mkfifo pipe.tsv && try 2 data head pipe.tsv --rows 1 # nobody writes to it: it is not waited for
says err "is not a plain file"
try 0 data head "$root/tests/data/rows.tsv" --rows 100
cp out log
gzip -c "$root/tests/data/rows.tsv" >rows.gz
try 0 data convert rows.gz rows.parquet --nulls --codec none
says out "rows.parquet: 48 rows, "
try 0 data head rows.parquet --rows 100
same "converted with nulls" out log
if [ $snappy = yes ]; then
    try 0 data convert "$root/tests/data/duckdb.parquet" again.parquet --codec none --nulls
    try 0 data head again.parquet --rows 100
    same "converted from another program's file" out log
fi
mkdir many && cp rows.parquet many/a.parquet && cp rows.parquet many/b.parquet
try 0 data convert many -o both.parquet --codec none
says out "both.parquet: 96 rows, "

# Made twice: the same bytes. Another seed: others.
try 0 data make --rows 2k --seed 3 --codec none -o a.parquet
try 0 data make --rows 2000 --seed 3 --codec none -o b.parquet
same "made twice" a.parquet b.parquet
try 0 data make --rows 2000 --seed 4 --codec none -o c.parquet
if cmp -s a.parquet c.parquet; then
    failed=$((failed + 1))
    echo "FAILED another seed gives the same file"
else passed=$((passed + 1)); fi
try 0 data make --rows 2000 --seed 3 --oracle -o o.parquet --codec none
try 0 data head o.parquet --rows 1
says out "  true    0."

try 0 data stats a.parquet -o metadata.json
says out "2000 rows, click rate 0.2"
says out "SPARSE_5 "
python3 - <<'END' && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "FAILED the metadata is not as it should be"; }
import json
m = json.load(open("metadata.json"))
assert len(m) == 40 and m["labels"]["rows"] == 2000
for i in range(26):
    c = m[f"SPARSE_{i}"]
    assert c["cardinality"] == len(c["tokenizer_values"]) and c["tokenizer_values"] == sorted(set(c["tokenizer_values"]))
assert 1 < m["DENSE_4"]["log_mean"] < 9 and m["DENSE_4"]["log_std"] > 1
END

# Errors say what to do, and leave nothing behind.
try 2 data
try 2 data convrt x
says err 'did you mean convert'
try 2 data convert only.tsv
says err 'usage: quern data convert IN... OUT.parquet'
try 2 data head none.parquet
says err 'cannot open none.parquet: No such file or directory'
try 2 data make --rows none -o x.parquet
says err '--rows takes a whole number from 1, such as 100, 500k or 2M, not `none`'
try 2 data make --rows 10
says err 'usage: quern data make --rows N'
try 2 data make --rows 10 -o x.parquet --codec brotli
says err 'there is no codec `brotli`: it is none, snappy, zstd, gzip or lz4'
printf 'a log\n' >second.tsv
try 2 data convert a.parquet second.tsv
says err 'second.tsv is named like a log, and what is written is Parquet'
says second.tsv 'a log'
try 2 data make --rows 10 made.tsv.gz
says err 'made.tsv.gz is named like a log'
try 2 data convert a.parquet a.parquet
says err 'a.parquet would be written over while it is read'
try 2 data make --rows 10 -o nowhere/x.parquet
says err 'cannot write nowhere/x.parquet: No such file or directory'
head -c 3000 a.parquet >cut.parquet
try 2 data head cut.parquet
says err 'cut.parquet: it begins as a Parquet file and does not end as one; the file is damaged'
printf '1\t2\tx\n' >bad.tsv
try 2 data convert bad.tsv bad.parquet
says err 'bad.tsv: line 1: 3 fields; a Criteo log has 40 on a line'
ls ./*.part bad.parquet x.parquet >/dev/null 2>&1
if ls ./*.part bad.parquet x.parquet 2>/dev/null | grep -q .; then
    failed=$((failed + 1))
    echo "FAILED something half written was left"
else passed=$((passed + 1)); fi
# Where the codecs are missing, files without compression work, and the others name the package.
QUERN_CODECS=none
export QUERN_CODECS
try 2 data head "$root/tests/data/pandas.parquet"
says err 'row group 0, column labels, page 0: it is compressed with Snappy, which is not here: install the Debian package libsnappy1v5'
try 2 data head "$root/tests/data/arrow_v2_zstd.parquet"
says err 'it is compressed with Zstandard, which is not here: install the Debian package libzstd1'
try 2 data head rows.gz
says err 'rows.gz: it is compressed with gzip, and zlib is not here: install the Debian package zlib1g'
try 2 data make --rows 10 -o x.parquet --codec lz4
says err 'files cannot be compressed with LZ4, which is not here: install the Debian package liblz4-1'
try 0 data make --rows 2000 --seed 3 -o d.parquet
same "without codecs, without compression" d.parquet a.parquet
unset QUERN_CODECS
# A full disk; what is no plain file is written to and stays what it is, as a link does.
if [ -w /dev/full ]; then
    ln -s /dev/full full.parquet
    try 2 data make --rows 2000 -o full.parquet --codec none
    says err 'cannot write full.parquet: No space left on device'
    try 2 data convert a.parquet full.parquet
    try 2 data stats a.parquet -o full.parquet
    if [ -L full.parquet ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED a device was replaced by a file"
    fi
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

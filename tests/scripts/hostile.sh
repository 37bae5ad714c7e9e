#!/bin/sh
# The command among hostile files, names and folders: nothing of them runs without raw kernels, nothing reaches the
# terminal as it is, reports and traces stay well-formed, no file of others is touched, and a compiler that hangs ends.
. "$(dirname "$0")/../holds.sh"
cd "$work" || exit 1
not() { ! "$@"; }
kernel='kernel k(in float x[n], out float y[n]) launch (n) { y[program(0)] = 2 * x[program(0)]; }'

# A folder whose name ends the comment at the top of the generated text.
evil='x */ int system(const char *); static void __attribute__((constructor)) q(void) { system("touch pwned"); } '
mkdir -p "$evil"
echo "$kernel" >"$evil/*.qn"
for device in cpu emu; do
    "$quern" devices --device "$device" | grep -q 'not available' && { echo "note: skipped hostile paths on $device: it is not there"; continue; }
    holds "a path that ends a comment, on $device" "$quern" run "$evil/*.qn" --set n=3 --no-raw --device "$device" --no-cache
    holds "... does not run, on $device" test ! -e pwned
done
"$quern" show "$evil/*.qn" k --stage cuda --device cuda --no-raw >cuda.txt
holds "... in CUDA text it stands" grep -q 'int system' cuda.txt
holds "... as a comment" not grep -q '[*]/ int' cuda.txt

# The file and the names of a tile IR dump.
"$quern" show "$evil/*.qn" k --stage tile >k.tile
sed '1s|.*|kernel k file "a */ int system(const char *); static void __attribute__((constructor)) q(void) { system(\\"touch pwned\\"); } /*"|' k.tile >evil.tile
holds "the file of a dump" "$quern" run evil.tile --set n=3 --no-raw
holds "... does not run" test ! -e pwned
mkdir keep
sed '1s|^kernel k|kernel "../x"|' k.tile >name.tile
holds "a dump with a path for a name is refused" not "$quern" run name.tile --set n=3 --keep keep/in
holds "... with a message" sh -c "\"$quern\" run name.tile --set n=3 --keep keep/in 2>&1 | grep -q 'is no name of a kernel'"
holds "... and writes nothing beside the folder" test -z "$(ls keep | grep -v '^in$')"

# Raw kernels: refused where they shall not run, on every command; told about once for a file where they may.
cat >raw.qn <<'QN'
kernel k(in float x[n], out float y[n], const int B = 8) launch (cdiv(n, B)) tune (B in {8, 16}) { y[program(0) * B : B] = 2 * x[program(0) * B : B]; }
c r(in float x[n], out float y[n])
"""
int system(const char *);
void r(const float *x, float *y, long n) { system("touch raw_ran"); for (long i = 0; i < n; i++) y[i] = 2 * x[i]; }
"""
bench b (n = 1000) { k, r }
QN
"$quern" run raw.qn r --set n=3 --device cpu --no-raw >out 2>&1
holds "run --no-raw" grep -q 'would run its text as it is written' out
for command in "check raw.qn" "bench raw.qn --seconds 0.01 --device cpu --threads 1" "profile raw.qn r --set n=3 --device cpu" "tune raw.qn k --set n=64 --budget 0.1s --device cpu" \
    "show raw.qn r --stage c" "debug raw.qn k --set n=3 --script /dev/null"; do
    "$quern" $command --no-raw >out 2>&1
    holds "$command --no-raw is an option" not grep -q 'no-raw' out
    holds "$command --no-raw runs nothing" test ! -e raw_ran
done
"$quern" run raw.qn r --set n=3 --device cpu >out 2>err
holds "a raw kernel runs" test -e raw_ran
holds "... and is told about" grep -q 'raw.qn has raw kernels: their text is compiled and runs as it is' err
"$quern" check raw.qn --no-emu >out 2>err
holds "... once for a file" test "$(grep -c 'has raw kernels' err)" = 1

# Terminal escapes in names, files and messages.
escape=$(printf '\033')
bell=$(printf '\007')
shown() { # NAME COMMAND...: neither stream has a control byte or a change of direction
    what=$1
    shift
    "$@" >out 2>err </dev/null
    cat out err >both
    holds "$what" not env LC_ALL=C grep -q "[$escape$bell]" both
    holds "$what, other directions" not env LC_ALL=C grep -q "$(printf '\342\200\256')" both
    holds "$what, C1" not env LC_ALL=C grep -q "$(printf '\302\233')" both
}
name="a${escape}]0;owned${bell}$(printf '\342\200\256\302\233')31m.qn"
printf 'kernel k(in float x[n], out float y[n]) launch (n) { y[program(0)] = z; } // %s[2J\n' "$escape" >"$name"
shown "diagnostics" "$quern" run "$name" --set n=3
shown "a file that is not there" "$quern" run "no$name"
shown "an option" "$quern" run "--$name"
shown "a command" "$quern" "$name"
shown "fmt --check" "$quern" fmt --check "$name"
printf 'kernel k(in float x[n], out float y[n]) launch (n) { /* %s[2J%s */ y[program(0)] = x[n]; print("\342\200\256 {}", n); }\n' "$escape" "$(printf '\302\233')" >"$name"
shown "findings" "$quern" check "$name" --device ref
printf 'kernel k(in float x[n], out float y[n]) launch (n) { y[program(0)] = x[0]; print("\342\200\256 {}", n); }\nbench b (n = 100) { k }\n' >"$name"
shown "prints" "$quern" run "$name" --set n=3
shown "a profile" "$quern" profile "$name" --device cpu --set n=3 --runs 1
shown "the log" env QUERN_LOG=all "$quern" run "$name" --set n=3 --no-cache
shown "the profile of a program" "$quern" profile -- "$quern" run "$name" --set n=3 --device cpu
shown "made rows" "$quern" data make --rows 10 -o "$name.parquet"
shown "facts of rows" "$quern" data stats "$name.parquet" -o "$name.json"
shown "rows" "$quern" data head "$name.parquet" --rows 1
printf 'kernel k file "%s[2J"\n bad' "$escape" >bad.tile
shown "a dump" "$quern" run bad.tile
holds "data for programs stays as it is" sh -c "\"$quern\" fmt \"$name\" | LC_ALL=C grep -q '$(printf '\342\200\256')'"

# Reports, pictures, tables and traces of files with hostile names stay what they are.
html='<script>alert(1)<\x2fscript>"&'"'"',a.qn'
printf 'kernel k(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B)) { y[program(0) * B : B] = 2 * x[program(0) * B : B]; }\nbench b (n = 1000) { k }\ntensor t(float x[n]) { return exp(x) * 2; }\n' >"$html"
holds "bench outputs" "$quern" bench "$html" --seconds 0.01 --device cpu --threads 1 --report r.html --json r.json --csv r.csv --sweep n=64..128 --plot r.svg
holds "profile outputs" "$quern" profile "$html" t --set n=64 --device cpu --runs 1 --report p.html --trace p.json --folded p.folded
"$quern" show "$html" t --dot >d.svg
for file in r.html p.html r.svg d.svg; do
    holds "$file has no foreign script" not grep -q '<script>alert' "$file"
done
if command -v python3 >/dev/null; then
    holds "JSON and SVG can be read" python3 -c "
import json, csv, xml.dom.minidom
json.load(open('r.json')); json.load(open('p.json')); xml.dom.minidom.parse('r.svg'); xml.dom.minidom.parse('d.svg')
rows = list(csv.reader(open('r.csv'))); assert len({len(r) for r in rows}) == 1, rows"
else
    echo "note: skipped reading hostile JSON, SVG and CSV: no python3 here"
fi

# The cache: what is not its own stays, in a folder that stays as it is.
mkdir cache_of_others
chmod 755 cache_of_others
for file in libmine.so server.key notes.txt; do
    echo precious >"cache_of_others/$file"
    touch -d '2 hours ago' "cache_of_others/$file"
done
echo "$kernel" >k.qn
before=$(stat -c '%a' cache_of_others)
QUERN_CACHE=$work/cache_of_others "$quern" devices >out 2>&1
QUERN_CACHE=$work/cache_of_others "$quern" run k.qn --set n=3 --device cpu >out 2>&1
QUERN_CACHE=$work/cache_of_others "$quern" cache list >out 2>&1
QUERN_CACHE=$work/cache_of_others "$quern" cache clear >out 2>&1
holds "files of others stay" test "$(cat cache_of_others/libmine.so cache_of_others/server.key cache_of_others/notes.txt | grep -c precious)" = 3
holds "the folder's mode stays" test "$(stat -c '%a' cache_of_others)" = "$before"
chmod 777 cache_of_others
QUERN_CACHE=$work/cache_of_others "$quern" run k.qn --set n=3 --device cpu >out 2>err
holds "a folder that others may write is told" grep -q 'may be written by others' err
holds "... and not used" test -z "$(ls cache_of_others | grep '^quern-')"
QUERN_CACHE=$work/cache_of_others "$quern" cache clear >out 2>err
holds "... nor cleared, which is no success" test $? = 1
holds "... and told" grep -q 'may be written by others' err
tunes='kernel k(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B)) tune (B in {32}) { y[program(0) * B : B] = 2 * x[program(0) * B : B]; }'
echo "$tunes" >tunes.qn
mkdir -m 700 cache_of_pipes
mkfifo -m 600 cache_of_pipes/tune.log
for folder in "$work/cache_of_others" "$work/cache_of_pipes"; do
    QUERN_CACHE=$folder "$quern" tune tunes.qn k --set n=64 --budget 0.1s --device cpu --threads 1 >out 2>err
    holds "timings that no other process finds are not said to be kept: $(cat out)" grep -q '^not kept, as the cache folder cannot be used' out
done

# A full disk under the cache, where one can be made.
mkdir small
if mount -t tmpfs -o size=8k,mode=700 tmpfs small 2>/dev/null; then
    QUERN_CACHE=$work/small "$quern" run k.qn --set n=3 --device cpu >out 2>err
    code=$?
    umount small
    holds "a full disk" test "$code" = 0
    holds "... is told" grep -q 'is full' err
else
    echo "note: skipped a full disk: no file system can be mounted here (test_cache has the same without one)"
fi

# What is named as a file: a pipe that nobody writes to, one that is written to late, a folder, a device without end.
mkfifo nobody late
timeout 20 "$quern" run nobody k --set n=3 >out 2>err &
waiting=$!
timeout 20 "$quern" run k.qn --set n=3 --device ref --edited nobody >out_edited 2>err_edited &
waiting_edited=$!
(sleep 3; echo "$kernel") | timeout 20 "$quern" run /dev/stdin k --set n=3 --device ref >out_slow 2>&1 &
waiting_slow=$!
(sleep 1; echo "$kernel") >late &
holds "a pipe that is written to is read" timeout 20 "$quern" run late k --set n=3 --device ref
for file in . /dev/zero /dev/null; do
    timeout 20 "$quern" run k.qn --set n=3 --device ref --edited "$file" >out_file 2>err_file
    code=$?
    holds "--edited $file is a wrong call, not $code: $(cat err_file)" test "$code" = 2
done
wait $waiting
holds "a pipe that nobody writes to is not waited for" test $? = 2
holds "... which is told" grep -q 'nobody is a pipe that nobody writes to' err
wait $waiting_slow; code=$?
holds "a pipe whose writer thinks for long is waited for: $(cat out_slow)" test "$code" = 0
wait $waiting_edited
holds "... nor one of a schedule" test $? = 2

# fmt --write: a link stays a link, rights stay, and a file that somebody laid in its way is not written through.
echo "  $kernel" >text.qn
chmod 640 text.qn
ln -s text.qn link.qn
holds "fmt writes through a link" "$quern" fmt --write link.qn
holds "... which stays one" test -L link.qn -a "$(stat -c '%a' text.qn)" = 640
echo precious >victim
echo "  $kernel" >text.qn
holds "fmt does not follow a link laid in its way" not sh -c 'ln -s victim "text.qn.$$.quern-fmt"; exec "$0" fmt --write text.qn 2>/dev/null' "$quern"
holds "... and writes nothing there" grep -qx precious victim

# Every file that is written: through a link, which stays one, with the rights that were there, and never half of it.
mkdir outputs
for name in trace.json table.csv check.json devices.json array.npy; do
    echo old >"outputs/$name"
    chmod 640 "outputs/$name"
    ln -s "outputs/$name" "$name"
done
holds "outputs are written" sh -c '"$0" profile k.qn k --set n=3 --device cpu --trace trace.json >out 2>&1 &&
    "$0" run k.qn k --set n=3 --device ref --out y=table.csv >out 2>&1 && "$0" run k.qn k --set n=3 --device ref --out y=array.npy >out 2>&1 &&
    "$0" check k.qn --no-emu --json check.json >out 2>&1 && "$0" devices --device ref --json devices.json >out 2>&1 || { cat out; false; }' "$quern"
for name in trace.json table.csv check.json devices.json array.npy; do
    holds "... $name through its link" test -L "$name" -a "$(stat -c '%a' "outputs/$name")" = 640 -a "$(head -c 4 "outputs/$name")" != old
done
ln -s outputs/new.json new.json # to a file that is not there yet
ln -s round.json round.json
holds "an output through a link to nothing" "$quern" devices --device ref --json new.json
holds "... makes what it leads to" test -L new.json -a -s outputs/new.json
holds "a link to itself is refused" not sh -c '"$0" devices --device ref --json round.json >out 2>err' "$quern"
holds "... by its name: $(cat err)" grep -q 'cannot write round.json: Too many levels of symbolic links' err
if [ -w /dev/full ]; then
    for command in "run k.qn k --set n=3 --device ref --out y=full.csv" "check k.qn --no-emu --json full.json" "devices --device ref --json full.json"; do
        ln -sf /dev/full full.csv
        ln -sf /dev/full full.json
        "$quern" $command >out 2>err
        code=$?
        holds "$command on a full disk: exit $code: $(cat err)" test "$code" != 0 -a -c /dev/full
        holds "... is told" grep -q 'No space left on device' err
    done
fi
# A file that its rights protect, and a folder in which nothing can be made: told before the work, and the old file stays.
plain_user() { # root may write everything
    if [ "$(id -u)" != 0 ]; then "$@"; else setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; fi
}
if plain_user test -x "$quern" 2>/dev/null; then
    rights=$(mktemp -d /tmp/quern-rights-XXXXXX)
    cp k.qn "$rights"
    mkdir "$rights/shut"
    echo old >"$rights/kept"
    echo old >"$rights/shut/there"
    [ "$(id -u)" != 0 ] || chown -R 65534 "$rights"
    chmod 444 "$rights/kept"
    chmod 644 "$rights/k.qn" "$rights/shut/there"
    chmod 555 "$rights/shut"
    for to in "devices --device ref --json $rights/kept" "check $rights/k.qn --device ref --json $rights/kept" "check $rights/k.qn --device ref --json $rights/shut/there" \
        "run $rights/k.qn k --set n=3 --device ref --out y=$rights/kept.npy"; do
        [ -e "$rights/kept.npy" ] || { cp "$rights/kept" "$rights/kept.npy" && chmod 444 "$rights/kept.npy"; }
        plain_user env QUERN_CACHE="$rights/cache" "$quern" $to >out 2>err
        holds "$to is refused: $(cat err)" grep -q 'cannot write .*: Permission denied' err
        case $to in check*) holds "... before the work" test ! -s out ;; esac
    done
    for name in kept kept.npy shut/there; do holds "... and $name stays" grep -qx old "$rights/$name"; done
    chmod 755 "$rights/shut"
    rm -rf "$rights"
else
    echo "SKIPPED files that rights protect: no other user can be taken on"
fi
holds "... and nothing is left beside them" not sh -c 'ls ./*.part outputs/*.part 2>/dev/null | grep .'

# Streams that were closed: no file takes their place and gets what is said there.
"$quern" run k.qn k --set n=3 --device cpu >out 2>&1
env QUERN_LOG=all "$quern" profile k.qn k --set n=3 --device cpu --runs 1 --no-cache --trace silent.json >out 2>&-
holds "a timeline without a standard error holds the timeline alone: $(head -c 100 silent.json)" test "$(head -c 1 silent.json)" = "{"
"$quern" run k.qn k --set n=3 --device ref --out y=silent.npy >&- 2>err
holds "without a standard output: not a success" test $? = 1
holds "... which is told" grep -q 'could not be written' err

# A folder whose name a compiler takes for an option, and a compiler that is a folder.
holds "the cache may be called -q" env QUERN_CACHE=-q "$quern" run k.qn --set n=3 --device cpu
mkdir -p tools
holds "a folder is no compiler" env QUERN_CC=./tools "$quern" run k.qn --set n=3 --device cpu --no-cache

# A point of a sweep that no memory holds fails by itself.
echo 'tensor f(float x[n]) { return x * 2 + 1; } bench b (n = 64) { f }' >sweep.qn
"$quern" bench sweep.qn --sweep 'n=1..9223372036854775807*2^62' --seconds 0.01 --device cpu >out 2>err
code=$?
holds "a sweep to 2^62 fails in words, not with $code" test "$code" = 1

# A compiler that hangs.
printf '#!/bin/sh\ncase "$*" in *--version*) echo slowcc 1.0; exit;; esac\nsleep 60 &\nsleep 60\n' >slowcc
chmod +x slowcc
start=$(date +%s)
QUERN_CC=$work/slowcc QUERN_COMPILE_LIMIT=1 "$quern" run k.qn --set n=3 --device cpu --no-cache >out 2>err
code=$?
holds "a compiler that hangs is an error" test "$code" = 1
holds "... that names the limit" grep -q 'had not finished after 1 s and was ended; QUERN_COMPILE_LIMIT' err
holds "... in time" test $(($(date +%s) - start)) -lt 30

# A signal in the middle: compilers end, private folders and files aside go. (A shell's own child would not take SIGINT.)
printf '#!/bin/sh\ncase "$*" in *--version*) echo slowcc 1.0; exit;; esac\necho $$ >compiler\nsleep 60 &\nsleep 60\n' >slowcc
mkdir temporary
ended_by() { # SIGNAL UNTIL COMMAND...: the status after a signal that is sent when the file UNTIL is there
    number=$1
    until=$2
    shift 2
    env TMPDIR="$work/temporary" "$@" >out 2>err </dev/null &
    running=$!
    for turn in $(seq 200); do
        ls $until >/dev/null 2>&1 && break
        sleep 0.05
    done
    kill -"$number" $running
    wait $running 2>/dev/null
}
for number in 15 1; do # to end, and that the terminal has gone
    rm -f compiler
    ended_by $number compiler env QUERN_CC="$work/slowcc" "$quern" run k.qn --set n=3 --device cpu --no-cache
    code=$?
    holds "signal $number while compiling: $code" test "$code" = $((128 + number))
    holds "... ends the compiler" not kill -0 "$(cat compiler)"
    holds "... and leaves nothing: $(ls -R temporary)" test -z "$(ls temporary)"
done
ended_by 15 'many.parquet.*.part' "$quern" data make --rows 100M -o many.parquet
holds "a data set that is ended" test $? = 143
holds "... leaves nothing" not ls many.parquet*
rm -f compiler
ended_by 15 compiler env QUERN_CC="$work/slowcc" "$quern" profile --trace program.json -- "$quern" run k.qn --set n=3 --device cpu --no-cache
holds "a profile that is ended" test $? = 143
holds "... ends its program and the compiler of it" not kill -0 "$(cat compiler)"
holds "... and leaves nothing: $(ls temporary)" test -z "$(ls temporary)"
finish

#!/bin/sh
# Sizes that `check` and `bench` choose: they satisfy the file's `assume`s, a refused one is called by its name, and shapes
# that do not fit at sizes which the extents allow are a failure.
# Usage: tests/scripts/sizes.sh BUILD_FOLDER
QUERN_CUDA_PATH=none
export QUERN_CUDA_PATH
quern="$(cd "${1:-build}" && pwd)/quern"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUERN_CACHE="$work/cache"
cd "$work" || exit 1
passed=0
failed=0
# check EXIT NAME TEXT: exit status and a line of `quern check`.
check() {
    "$quern" check file.qn "$2" --no-emu >out 2>&1
    code=$?
    if [ "$code" = "$1" ] && grep -qF -- "$3" out; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED check $2: exit $code, not $1, or this is missing: $3"
        cat out
    fi
}
cat >file.qn <<'END'
tensor apart(float a[M][K], float b[N][K]) { return matmul(a, b); }
tensor together(float a[M][K], float b[N][K]) { return a @ transpose(b); }
tensor fourths(float x[B][D]) { return reshape(x, B, 4, D / 4); }
tensor sixteenths(float x[B][D]) { assume(D % 16 == 0); return reshape(x, B, D / 16, 16); }
tensor both(float x[B][D]) { assume(D >= 40 && D % 3 == 1); return x[:][0 : 40]; }
tensor related(float x[n], float y[m]) { assume(2 * n == m); return x + y[0 : n]; }
tensor head(float x[B][D]) { return x[:][0 : 40]; }
tensor never(float x[B]) { assume(B < 0); return x; }
kernel blocks(in float x[n], out float y[n], const int B = 64)  launch (n / B)
{
    assume(n % B == 0);
    int i = program(0) * B;
    y[i : B] = x[i : B];
}
kernel whole(in float x[n], out float y[n], const int B = 64)  launch (cdiv(n, B)) { y[program(0) * B : B] = x[program(0) * B : B]; }
END
check 1 apart "  extents that must agree have one name; what else must hold is said by \`assume\`, as \`assume(D % 4 == 0);\`"
check 1 apart "apart: 1 finding in 2 cases on ref"
check 0 together "together: clean, 11 cases on ref, cpu"
check 1 fourths "fourths on ref with B=1 D=1:"
check 1 head "head on ref with B=1 D=1:"
check 0 sixteenths "sixteenths: clean, 14 cases on ref, cpu"
check 0 both "both: clean, 14 cases on ref, cpu"
check 0 related "related: clean, 14 cases on ref, cpu"
check 0 blocks "blocks: clean, 9 cases on ref, cpu"
check 1 never "never: no size that was tried satisfies \`assume(B < 0)\` on line 8; give sizes with --set"
# A variant that is wrong at small sizes alone is found: so the bench's small sizes satisfy the `assume`.
cat >bench.qn <<'END'
kernel blocks(in float x[n], out float y[n], const int B = 64)  launch (n / B)
{
    assume(n % B == 0);
    y[program(0) * B : B] = x[program(0) * B : B];
}
kernel wrong(in float x[n], out float y[n], const int B = 64)  launch (n / B)
{
    assume(n % B == 0);
    y[program(0) * B : B] = x[program(0) * B : B] + (n < 5000 ? 1 : 0);
}
bench blocks (n = 1 << 16) { blocks, wrong }
END
"$quern" bench bench.qn --seconds 0.01 >out 2>err
if grep -q '^wrong wrong: y\[0\] is .* at n = 4096$' out; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAILED: the bench did not compare at small sizes that its assume allows"
    cat out err
fi
# `show` of a kernel takes the bench's sizes, those of the device that the stage is of, and says so; --set comes first.
cat >show.qn <<'END'
kernel twice(in float x[n], out float y[n], const int B = 64)  launch (cdiv(n, B)) { y[program(0) * B : B] = 2 * x[program(0) * B : B]; }
kernel alone(in float x[n], out float y[n], const int B = 64)  launch (cdiv(n, B)) { y[program(0) * B : B] = 2 * x[program(0) * B : B]; }
bench twice (n = 1 << 20) on cpu (n = 1 << 16) { twice }
END
told() { # told WORDS ARGUMENTS...: WORDS is the note, or nothing
    words=$1
    shift
    "$quern" show show.qn "$@" >out 2>err
    if [ "$(sed -n 's/^quern: note: \(.*\), of its bench; others with --set$/\1/p' err)" = "$words" ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: show $*: not told '$words'"
        cat err
    fi
}
told 'n = 65536' twice
told 'n = 1048576' twice --stage cuda --device cuda
told 'n = 1048576' twice --stage hints
told '' twice --set n=1000
told '' twice --stage tile
told '' twice --stage ast
told '' alone
"$quern" show show.qn twice >given 2>/dev/null
"$quern" show show.qn twice --set n=65536 >out 2>/dev/null
"$quern" show show.qn alone >other 2>/dev/null
if cmp -s given out && ! { sed 's/alone/twice/g' other | cmp -s - given; }; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAILED: show without sizes is not that of the bench's"
fi
# A tensor function whose sizes depend on each other says how that is written.
printf 'tensor net(float x[N][D], float w[F][C]) { return flatten(x[:][:][], first = 1) @ pad(w, 1, 0, axis = 0); }\n' >net.qn
"$quern" check net.qn --no-emu >out 2>&1
if grep -q 'net: does not compile with sizes that are chosen each for itself; give some that fit with --set' out; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAILED: sizes that depend on each other"
    cat out
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

#!/bin/sh
# The order of the folders, by what the objects call: an include can be avoided with a declaration or a public header, a
# symbol cannot. What goes against the order today is listed below, and the list only gets shorter.
# Usage: tests/scripts/symbols.sh BUILD_FOLDER
build=$(cd "${1:-build}" && pwd)
objects=$build/CMakeFiles/quern_objects.dir/src
if ! command -v nm >/dev/null || [ ! -d "$objects" ]; then
    echo "note: skipped the symbols of the folders: there is no nm, or no objects in $objects"
    echo "0 passed, 0 failed"
    exit 0
fi
cd "$objects" || exit 1
order="base ir target lang tensor fuse passes schedule loops emit device run profile data model"
# A context tells the profiler that it comes and goes; buffers and files are public functions that tensors use.
known="run/context.c profile_context_closing profile
run/context.c profile_context_opened profile
run/realize_read.c qn_npy_write data
tensor/create.c qn_buffer_data run
tensor/create.c qn_buffer_new_on run
tensor/create.c qn_buffer_retain run
tensor/create.c qn_buffer_size_bytes run
tensor/create.c qn_buffer_wrap run
tensor/create.c qn_npy_free data
tensor/create.c qn_npy_read data
tensor/create.c tape_storage_write run
tensor/optim.c qn_tensor_write run
tensor/tape.c qn_buffer_release run
tensor/tape.c qn_buffer_retain run
tensor/tape.c qn_buffer_size_bytes run
tensor/tape.c tape_storage run"
found=$(nm -A -P */*.o 2>/dev/null | awk -v order="$order" '
    BEGIN { count = split(order, names, " "); for (i = 1; i <= count; i++) place[names[i]] = i }
    {
        file = $1
        sub(/\.o.*/, "", file)
        folder = file
        sub(/\/.*/, "", folder)
        if ($3 == "U") uses[file " " $2] = folder
        else if ($3 ~ /[TDBRVW]/) owner[$2] = folder
    }
    END {
        for (use in uses) {
            split(use, part, " ")
            if (part[2] in owner && place[owner[part[2]]] > place[uses[use]]) print use " " owner[part[2]]
        }
    }' | sort)
failed=0
new=$(printf '%s\n' "$found" | grep -vxF "$known" | grep .)
gone=$(printf '%s\n' "$known" | grep -vxF "${found:-nothing}" | grep .)
if [ -n "$new" ]; then
    printf '%s\n' "$new" | sed 's/^\([^ ]*\) \([^ ]*\) \(.*\)/src\/\1 uses \2 of \3\/, which comes after it/'
    failed=1
fi
if [ -n "$gone" ]; then
    printf '%s\n' "$gone"
    echo "these uses against the order are gone: take them out of the list in symbols.sh"
    failed=1
fi
echo "note: $(printf '%s\n' "$known" | grep -c .) uses of symbols go against the order of the folders"
[ "$failed" = 0 ] && echo "1 passed, 0 failed" || echo "0 passed, 1 failed"
exit "$failed"

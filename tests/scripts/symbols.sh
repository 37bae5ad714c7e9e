#!/bin/sh
# The order of the folders, by what the objects call: an include can be avoided with a declaration or a public header, a
# symbol cannot.
# Usage: tests/scripts/symbols.sh BUILD_FOLDER
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-build}" && pwd)
objects=$build/CMakeFiles/quern_objects.dir/src
if ! command -v nm >/dev/null || [ ! -d "$objects" ]; then
    echo "note: skipped the symbols of the folders: there is no nm, or no objects in $objects"
    echo "0 passed, 0 failed"
    exit 0
fi
cd "$objects" || exit 1
order="base ir target lang tensor fuse passes schedule loops emit device run profile data model"
# An older build may have left objects of files that are gone.
list=$(for object in $(find . -name "*.o" | sed "s|^./||"); do [ -f "$root/src/${object%.o}" ] && echo "$object"; done)
found=$(nm -A -P $list 2>/dev/null | awk -v order="$order" '
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
if [ -n "$found" ]; then
    printf '%s\n' "$found" | sed 's/^\([^ ]*\) \([^ ]*\) \(.*\)/src\/\1 uses \2 of \3\/, which comes after it/'
    failed=1
fi
[ "$failed" = 0 ] && echo "1 passed, 0 failed" || echo "0 passed, 1 failed"
exit "$failed"

#include "emit/prelude_parts.h"
const prelude_part prelude_dot_parts[] = {{0}};

"""A GPU that several benches share: each times while no other does. QUERN_GPU_LOCK names the file that they lock; without it nobody waits.
SPDX-License-Identifier: MIT
"""

import contextlib
import fcntl
import os


@contextlib.contextmanager
def alone():
    path = os.environ.get("QUERN_GPU_LOCK")
    if not path:
        yield
        return
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

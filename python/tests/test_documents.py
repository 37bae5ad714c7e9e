"""The blocks of docs/pytorch.md and the programs of examples/python, run as they stand."""

import glob
import os
import re
import subprocess
import sys
import unittest

from .support import needs_torch, quern

ROOT = os.environ.get("QUERN_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, "docs", "pytorch.md")
EXAMPLES = os.path.join(ROOT, "examples", "python")


@needs_torch
class Documents(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(PAGE), "the documents are not here")
    def test_page(self):
        with open(PAGE) as file:
            blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
        self.assertGreater(len(blocks), 5)
        names = {}
        for block in blocks:
            exec(compile(block, "docs/pytorch.md", "exec"), names)

    @unittest.skipUnless(os.path.isdir(EXAMPLES), "the examples are not here")
    def test_examples(self):
        folder = os.path.dirname(os.path.dirname(os.path.abspath(quern.__file__)))
        environment = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
        programs = [p for p in sorted(glob.glob(os.path.join(EXAMPLES, "*.py"))) if not p.endswith("timing.py")]
        self.assertGreaterEqual(len(programs), 6)
        for path in programs:
            with self.subTest(os.path.basename(path)):
                result = subprocess.run([sys.executable, path, "--quick"], env=environment, capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()

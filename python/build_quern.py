"""Builds the wheel, by PEP 517 and nothing but Python, CMake and a C compiler: libquern.a with CMake, the extension
`_quern.abi3.so` with it inside, and a zip file of it and the package. Run as a program it builds the extension in place.

One wheel serves every CPython with a GIL from 3.11 on: the extension keeps to the limited API.
"""

import base64
import glob
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
EXTENSION = "_quern.abi3.so"
LIMITED = "0x030B0000"


def _run(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        sys.stderr.write(result.stdout)
        raise SystemExit(f"building quern failed: {' '.join(command[:3])} ...")


def _library(build):
    """libquern.a in the build folder, QUERN_BUILD or one of ours."""
    if not os.path.exists(os.path.join(build, "CMakeCache.txt")):
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        _run("cmake", "-S", ROOT, "-B", build, *generator, "-DCMAKE_BUILD_TYPE=RelWithDebInfo")
    _run("cmake", "--build", build, "--target", "quern_static")
    return os.path.join(build, "libquern.a")


def build_extension(folder):
    """Compiles the extension into a folder; returns its path."""
    build = os.environ.get("QUERN_BUILD") or os.path.join(ROOT, "build-python")
    library = _library(build)
    include = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(include, "Python.h")):
        raise SystemExit(f"building quern needs Python's headers, which are not in {include}: install python3-dev")
    out = os.path.join(folder, EXTENSION)
    flags = ["-std=gnu11", "-O2", "-g0", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"]
    sources = sorted(glob.glob(os.path.join(HERE, "src", "*.c")))
    _run(
        *(os.environ.get("CC") or "cc").split(),
        *flags,
        f"-DPy_LIMITED_API={LIMITED}",
        f"-I{os.path.join(ROOT, 'include')}",
        f"-I{include}",
        *sources,
        library,
        "-Wl,--exclude-libs,ALL",
        "-Wl,--strip-debug",
        "-lm",
        "-ldl",
        "-lpthread",
        "-o",
        out,
    )
    return out


def _tag():
    libc, version = platform.libc_ver()
    machine = platform.machine()
    if libc == "glibc":
        return f"cp311-abi3-manylinux_{version.replace('.', '_')}_{machine}"
    return f"cp311-abi3-linux_{machine}"


def _project():
    with open(os.path.join(HERE, "pyproject.toml"), "rb") as file:
        return tomllib.load(file)["project"]


def _metadata(project):
    return (
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\nSummary: {project['description']}\n"
        f"License: MIT\nRequires-Python: {project['requires-python']}\n"
    )


def _entry_points(project):
    lines = []
    for group, entries in project["entry-points"].items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {value}" for name, value in entries.items()]
    return "\n".join(lines) + "\n"


class _Wheel:
    def __init__(self, folder, project, tag):
        self.information = f"{project['name']}-{project['version']}.dist-info"
        self.name = f"{project['name']}-{project['version']}-{tag}.whl"
        self.zip = zipfile.ZipFile(os.path.join(folder, self.name), "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data):
        info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
        info.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self):
        name = f"{self.information}/RECORD"
        self.record.append(f"{name},,")
        self.zip.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), "\n".join(self.record) + "\n")
        self.zip.close()
        return self.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    import tempfile

    project, tag = _project(), _tag()
    with tempfile.TemporaryDirectory() as folder:
        with open(build_extension(folder), "rb") as file:
            extension = file.read()
    wheel = _Wheel(wheel_directory, project, tag)
    package = os.path.join(HERE, "quern")
    for path in sorted(glob.glob(os.path.join(package, "*"))):
        if path.endswith((".py", ".pyi", "py.typed")):
            with open(path, "rb") as file:
                wheel.add("quern/" + os.path.basename(path), file.read())
    wheel.add("quern/" + EXTENSION, extension)
    wheel.add(f"{wheel.information}/METADATA", _metadata(project).encode())
    wheel.add(f"{wheel.information}/entry_points.txt", _entry_points(project).encode())
    kind = f"Wheel-Version: 1.0\nGenerator: build_quern\nRoot-Is-Purelib: false\nTag: {tag}\n"
    wheel.add(f"{wheel.information}/WHEEL", kind.encode())
    return wheel.close()


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("quern is built from its repository: pip install ./python, or make wheel")


if __name__ == "__main__":
    print(build_extension(os.path.join(HERE, "quern")))

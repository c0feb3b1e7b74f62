"""How long `import selbo` and `selbo --help` take, each in a process of its own; the best of several.

python benchmarks/import_time.py
python benchmarks/import_time.py --repeats 20
"""

import argparse
import platform
import subprocess
import sys
import time

CODE = {
    "Python alone": "pass",
    "import selbo": "import selbo",
    "import torch, numpy": "import torch, numpy",
    "... and all public names of selbo": "import torch, numpy, selbo; [getattr(selbo, name) for name in selbo.__all__]",
    "selbo --help": "import sys; sys.argv = ['selbo', '--help']; from selbo.cli.main import main; main()",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}, best of {options.repeats}\n")
    print("| what | seconds |\n|---|---|")
    for name, code in CODE.items():
        print(f"| {name} | {min(seconds(code) for _ in range(options.repeats)):.3f} |", flush=True)


def seconds(code: str) -> float:
    """Of a fresh interpreter, its start and end included."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()

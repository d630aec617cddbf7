"""Prints what pyproject.toml asks for: the run-time dependencies, then those of the extras named.

    python cmake/requirements.py test         dependencies and the extra `test`
    python cmake/requirements.py --only lint  the extra `lint` alone

pip itself can only install these together with the project, which would build it first.
"""

import argparse
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("extras", nargs="*")
parser.add_argument("--only", action="store_true", help="leave out the run-time dependencies")
arguments = parser.parse_args()

text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
project = tomllib.loads(text)["project"]
requirements = [] if arguments.only else list(project["dependencies"])
for extra in arguments.extras:
    requirements += project["optional-dependencies"][extra]
print(" ".join(requirements))

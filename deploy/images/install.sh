#!/bin/sh
# Installs parts of Tollkeeper into /venv: install.sh gateway,cli. Run by the Dockerfile, in a checkout, after the wheel
# lies in /dist. "providers" is LiteLLM's environment, which has none of the others' versions.
set -eu

python3 -m venv /venv
if [ "$1" = providers ]; then
    /venv/bin/pip install -q --no-deps -r constraints/providers.txt
else
    # The wheel asks for all parts; an image has its own alone, so their names come from pyproject.toml.
    python3 - "$1" >/tmp/requirements.txt <<'PYTHON'
import sys
import tomllib

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
for name in sys.argv[1].split(","):
    project["dependencies"] += project["optional-dependencies"][name]
print(*project["dependencies"], sep="\n")
PYTHON
    /venv/bin/pip install -q -c constraints/base.txt -r /tmp/requirements.txt
fi
/venv/bin/pip install -q --no-deps /dist/tollkeeper-*.whl
/tools/bin/cyclonedx-py environment --spec-version 1.6 --output-format JSON --output-reproducible \
    --pyproject pyproject.toml --output-file /venv/sbom.cdx.json /venv/bin/python
# Nothing is installed where it runs.
/venv/bin/pip uninstall -q -y pip setuptools 2>/dev/null || true

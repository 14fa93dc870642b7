#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what the tests want of the system, if it may; else says in one line what is missing. Asks
# for the things themselves, not for packages, so that it is content with any distribution's.
set -euo pipefail

python=${PYTHON:-python3}
missing=()
command -v g++ > /dev/null || missing+=(g++)
echo '#include <gtest/gtest.h>' | g++ -E -x c++ - > /dev/null 2>&1 || missing+=(libgtest-dev)
command -v "$python" > /dev/null || missing+=(python3)
"$python" -c 'import ensurepip, venv' 2> /dev/null || missing+=(python3-venv)
"$python" -c 'import os, sysconfig; os.stat(sysconfig.get_paths()["include"] + "/Python.h")' \
  2> /dev/null || missing+=(python3-dev)

if ((${#missing[@]} == 0)); then
  exit 0
fi
if ((EUID != 0)) || ! command -v apt-get > /dev/null; then
  echo "make: missing on this machine (Debian: apt-get install ${missing[*]})" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends "${missing[@]}"

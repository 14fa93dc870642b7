#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that the C++ tests want, if it may; else says which are missing.
set -euo pipefail

wanted=(g++ libgtest-dev)
missing=()
for package in "${wanted[@]}"; do
  if ! dpkg-query -W -f='${Status}' "$package" 2> /dev/null | grep -q 'install ok installed'; then
    missing+=("$package")
  fi
done
if ((${#missing[@]} == 0)); then
  exit 0
fi
if ((EUID != 0)) || ! command -v apt-get > /dev/null; then
  echo "the C++ tests want these Debian packages: apt-get install ${missing[*]}" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends "${missing[@]}"

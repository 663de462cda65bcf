#!/usr/bin/env bash
# Runs the loader, the store and the command in hostile environments. Each case must end with the right result or with
# an error that names the file, leave the old generation and every foreign file unchanged, and never hang.
#
# usage: scripts/hostile.sh [--short] [ENVIRONMENT...]      default: all of them
#
# --short runs, instead of all cases, the first and the middle one of each kind: each limit, verb, failing call and odd file,
# and a few quick tests. About a minute on two cores.
#
#   limits            tests and builds with few descriptors, threads, little memory and short files
#   descriptors       large builds with 64 and 1024 descriptors
#   full_disk         a tmpfs that is full at every n-th page
#   bad_sectors       ext4 on a loop device whose backing file was truncated: reads fail with EIO, maps with SIGBUS
#   failing_writes    a loop device that cannot be written back, and an error injected into every n-th system call
#   foreign_content   directories with a user's files under every name that the program uses
#   odd_files         each file of a store as a link, FIFO, directory, hard link or without permission
#   two_users         two users in one group, each of whom changes what the other wrote
#   fork              the tests of forked children
#
# Disk errors are made by loop devices and `strace --inject`. Both work in a virtual machine of Linux 6.18 with root, as
# in continuous integration. That kernel has no device mapper; FUSE and preload libraries are not needed.
# Root prepares and checks. Where root would bypass a limit (modes of files, number of threads), the command runs as a
# user without privileges. Mounts are made in their own namespace and always end with it. Cases that a machine cannot
# run (mounts without root) are printed as CANNOT and counted.
#
# The last line is `N passed, N failed`. Exit: 0 if all cases passed, else 1.
set -euo pipefail
cd "$(dirname "$0")/.."

export PYTHONDONTWRITEBYTECODE=1
target=${CARGO_TARGET_DIR:-target}

install_tools() {
    local tool missing=()
    for tool in mkfs.ext4:e2fsprogs debugfs:e2fsprogs mount:mount unshare:util-linux losetup:mount strace:strace; do
        command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
    done
    [ ${#missing[@]} = 0 ] || { apt-get update -qq && apt-get install -qq --yes "${missing[@]}"; }
}

PATH=$PATH:/usr/sbin:/sbin
install_tools || echo 'some tools could not be installed' >&2

mkdir -p "$target"
binaries=$target/hostile-binaries.json
cargo test --workspace --all-features --no-run --message-format=json >"$binaries"

namespace=()
if unshare --mount --propagation private true 2>/dev/null; then
    namespace=(unshare --mount --propagation private)
fi
exec "${namespace[@]}" python3 scripts/hostile --binaries "$binaries" --disk "$target/hostile" "$@"

#!/usr/bin/env bash
# Packs the files of a directory into an archive; equal files make equal archives.
#
#   scripts/pack.sh DIRECTORY ARCHIVE.tar.gz
#
# Names are sorted and relative to DIRECTORY, times and owners are 0, and modes are 644 and 755. Needs GNU tar.
set -euo pipefail
if [ $# -ne 2 ]; then
    sed -n '4s/^# *//p' "$0" >&2
    exit 2
fi
directory=$1 archive=$2

export LC_ALL=C
find "$directory" -mindepth 1 -printf '%P\0' | sort -z |
    tar --create --directory "$directory" --null --no-recursion --files-from - --format ustar \
        --mtime @0 --owner 0 --group 0 --numeric-owner --mode u=rwX,go=rX | gzip -9 -n >"$archive.new"
mv "$archive.new" "$archive"

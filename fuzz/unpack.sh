#!/usr/bin/env bash
# Unpacks the archives that the fuzz scripts read, unless they are unpacked already:
#
#   fuzz/unpack.sh
#
# Each corpus goes to fuzz/work/committed/TARGET. fuzz/work/data is tests/data with its archives unpacked; the
# directories in it are links. Nothing writes to either of them; fuzz/minimise.sh and scripts/pack.sh make the archives.
set -euo pipefail
cd "$(dirname "$0")"

unpack() { # ARCHIVE DIRECTORY
    local archive=$1 directory=$2
    if [ "$directory" -nt "$archive" ]; then return; fi
    rm -rf "$directory" "$directory.new"
    mkdir -p "$directory.new"
    tar --extract --gzip --file "$archive" --directory "$directory.new"
    mv "$directory.new" "$directory" # only a complete directory gets the name
}

mkdir -p work/committed work/data
for archive in corpus/*.tar.gz; do
    unpack "$archive" "work/committed/$(basename "$archive" .tar.gz)"
done
for archive in ../tests/data/*.tar.gz ../crates/container/tests/data/*.tar.gz; do
    unpack "$archive" "work/data/$(basename "$archive" .tar.gz)"
done
for directory in ../tests/data/*/ ../crates/container/tests/data/*/; do
    directory=${directory%/}
    [ -e "$directory.tar.gz" ] || ln -sfn "../../$directory" "work/data/$(basename "$directory")"
done

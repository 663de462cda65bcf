#!/usr/bin/env bash
# Compares the public interface of the crates with tests/public-api.txt, so that a change of it is seen in review.
#
#   scripts/public_api.sh            print the differences; exit 1 if there are any
#   scripts/public_api.sh --accept   write the file
#
# The form is that of cargo-public-api, with all features, and without the traits that are derived, automatic or implemented
# for all types. It reads the JSON of one nightly rustdoc. Missing tools are installed.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.52.0
toolchain=nightly-2026-05-19
file=tests/public-api.txt
target=${CARGO_TARGET_DIR:-target}/public-api

case $#:${1-} in
    0: | 1:--accept) ;;
    *)
        sed -n '4,5s/^# *//p' "$0" >&2
        exit 2
        ;;
esac

rustup toolchain list | grep -q "^$toolchain" || rustup toolchain install "$toolchain" --profile minimal
tool=$target/$version/bin/cargo-public-api
[ -x "$tool" ] || cargo install cargo-public-api --version "$version" --locked --quiet --root "$target/$version"

found=$target/public-api.txt
for package in sharddb-format sharddb sharddb-remote sharddb-container sharddb-serve; do
    RUSTUP_TOOLCHAIN=$toolchain CARGO_TARGET_DIR=$target "$tool" -sss --all-features --package "$package" --color never
done >"$found" 2>"$target/log" || {
    cat "$target/log" >&2
    exit 1
}

if [ "${1-}" = --accept ]; then
    cp "$found" "$file"
elif ! diff -u "$file" "$found"; then
    echo "the public interface is another one: if that is meant, scripts/public_api.sh --accept" >&2
    exit 1
fi
echo "$(wc -l <"$file") public items"

#!/usr/bin/env bash
# Builds everything that a release consists of into dist/, and installs and runs each part where there is nothing else:
#
#   scripts/release.sh VERSION [--dry-run] [--from STEP]
#
#   --dry-run    accept that Cargo.toml has no address of a repository yet, and that CHANGELOG.md has no date
#   --from STEP  go on with this step, after a failure: what the earlier ones made is still there
#
# It works in a clone of HEAD below target/release-work, where it sets the version and commits, so that this checkout stays as it is.
# Nothing is uploaded: RELEASING.md says how. Needed: Linux on x86-64, Rust by rustup, Python 3.11 or later, a C compiler, and apt
# for qemu-user, debootstrap and lintian; root for chroot. It takes about an hour on two cores.
#
# Exit: 0 if all steps passed, 1 if one failed, 2 for other arguments.
set -euo pipefail
cd "$(dirname "$0")/.."

# NAME : WHAT IT DOES
steps='
tree             : clones HEAD, sets the version, checks CHANGELOG.md and the address
tools            : installs what builds and checks
gates            : the oldest Rust compiles; the interfaces of Rust and Python changed as the version says; the workflows are sound
licences         : the licences of what is linked
crates           : each crate builds from its archive
sdist            : the sources of the Python package
wheel-x86_64     : wheels for glibc and musl
wheel-aarch64    : wheels for glibc and musl
binaries         : static programs, as archives and as Debian packages
sbom             : what is linked, as CycloneDX
inspection       : sizes, tags, licences, symbols of the artefacts
repetition       : a second build of the wheel, a program and the crates gives the same bytes
smoke-wheel      : the wheel in an environment without Rust
smoke-sdist      : the sources of the Python package, built where there is nothing else
smoke-binary     : the program in an empty root, with a bucket and a server with a certificate of its own
smoke-deb        : the package on Debian
smoke-crates     : a Rust program with the packaged crates, offline
smoke-aarch64    : the program and the wheel of the other processor, emulated
sums             : SHA-256 sums, and the list of artefacts
'

usage() {
    sed -n '4p' "$0" | sed 's/^# */usage: /' >&2
    awk -F ' *: *' 'NF > 1 { print "  " $1 }' <<<"$steps" >&2
    exit 2
}

version='' dry='' from=tree
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) dry=1 ;;
        --from) from=${2-} && shift ;;
        -*) usage ;;
        *)
            [ -z "$version" ] || usage
            version=$1
            ;;
    esac
    shift || usage
done
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || usage
grep -q "^$from *:" <<<"$steps" || usage

root=$PWD
work=$root/target/release-work dist=$root/dist
tree=$work/tree venv=$work/venv build=$work/build
cargo=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$work" "$dist"
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$build
export PATH=$venv/bin:$work/tools/bin:$PATH
export CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_STRIP=symbols
export CARGO_PROFILE_RELEASE_LTO=thin CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1

# The same bytes from the same commit, wherever it is built.
reproducibly() {
    SOURCE_DATE_EPOCH=$(git -C "$tree" log -1 --format=%ct) \
        RUSTFLAGS="--remap-path-prefix=$CARGO_TARGET_DIR=/target --remap-path-prefix=$tree=/sharddb --remap-path-prefix=$cargo=/cargo" \
        CFLAGS="-ffile-prefix-map=$cargo=/cargo" "$@"
}

fail() {
    echo "release.sh: $*" >&2
    return 1
}

# ---- before anything is built ----

tree() {
    [ -z "$(git status --porcelain)" ] || fail 'the tree has changes: commit them' || return
    rm -rf "$tree" "$build" "${dist:?}"/*
    git clone --quiet --no-hardlinks "$root" "$tree" && cd "$tree" && python3 scripts/set_release.py "$version" || return
    if [ -n "$(git status --porcelain)" ]; then
        git commit --quiet --all --message "release: set version $version" || return
    fi
    grep -q "^## \[$version\] - [0-9]\{4\}-" CHANGELOG.md || [ -n "$dry" ] ||
        fail "CHANGELOG.md has no part '## [$version] - DATE'" || return
    ! grep -q '^repository = .*\.invalid' Cargo.toml || [ -n "$dry" ] ||
        fail 'Cargo.toml: repository is a placeholder: write the address, and run scripts/set_release.py'
}

cargo_tool() { # NAME VERSION
    [ -x "$work/tools/bin/$1" ] ||
        cargo install --quiet --locked --root "$work/tools" --target-dir "$work/tools/target" "$1" --version "$2"
}

tools() {
    local missing=() tool
    for tool in qemu-aarch64:qemu-user debootstrap lintian dpkg-deb:dpkg-dev openssl curl; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
    done
    if [ ${#missing[@]} -gt 0 ]; then
        as_root apt-get update -qq &&
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || return
    fi
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv" || return
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements-release.txt || return
    rustup target add {x86_64,aarch64}-unknown-linux-{gnu,musl} || return
    cargo_tool cargo-about 0.9.3 && cargo_tool cargo-auditable 0.7.7 && cargo_tool cargo-cyclonedx 0.5.9 && cargo_tool cargo-deb 3.8.0
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# The interfaces against those of the last tag, and before the first tag against themselves, which shows that the checks run.
gates() {
    local oldest before crate
    cd "$tree"
    oldest=$(sed -n 's/^rust-version = "\([^"]*\)".*/\1/p' Cargo.toml)
    rustup toolchain install "$oldest" --profile minimal &&
        cargo "+$oldest" build --locked --workspace --exclude sharddb-examples --all-features --target-dir "$work/oldest" || return
    before=$(git tag --list 'v*' --sort=-version:refname | head -n 1)
    git worktree prune && rm -rf "$work/before" && git worktree add --quiet --detach "$work/before" "${before:-HEAD}" || return
    cargo_tool cargo-semver-checks 0.51.0 || return
    for crate in sharddb sharddb-format sharddb-container sharddb-remote sharddb-serve; do
        cargo semver-checks --package "$crate" --baseline-root "$work/before" --target-dir "$work/semver" || return
    done
    griffe check sharddb --search python --against "${before:-HEAD}" && zizmor --offline --quiet .github/workflows
}

# ---- artefacts ----

# Of the extension, which links all that the command links. The wheel takes every `LICENSE-*` beside its manifest.
licences() {
    cd "$tree"
    cargo about generate --locked --fail --config scripts/release/about.toml --manifest-path python/Cargo.toml \
        scripts/release/licences.hbs --output-file python/LICENSE-THIRD-PARTY
}

crates() {
    cd "$tree"
    reproducibly cargo package --quiet --locked --workspace --exclude sharddb-examples --all-features &&
        cp "$build"/package/*-"$version".crate "$dist"
}

sdist() {
    cd "$tree"
    reproducibly maturin sdist --quiet --manifest-path python/Cargo.toml --out "$dist"
}

wheel() { # TARGET COMPATIBILITY DIRECTORY
    cd "$tree"
    reproducibly maturin build --quiet --release --locked --zig --strip --target "$1" --compatibility "$2" --interpreter python3.11 \
        --manifest-path python/Cargo.toml --out "$3"
}

wheel_x86_64() {
    wheel x86_64-unknown-linux-gnu manylinux_2_28 "$dist" && wheel x86_64-unknown-linux-musl musllinux_1_2 "$dist"
}

wheel_aarch64() {
    wheel aarch64-unknown-linux-gnu manylinux_2_28 "$dist" && wheel aarch64-unknown-linux-musl musllinux_1_2 "$dist"
}

program() { # TARGET
    cd "$tree"
    reproducibly cargo auditable zigbuild --quiet --release --locked --package sharddb-cli --all-features --target "$1"
}

binaries() {
    local target
    for target in x86_64-unknown-linux-musl aarch64-unknown-linux-musl; do
        program "$target" && archive "$target" && debian "$target" || return
    done
}

archive() { # TARGET
    local name=sharddb-$version-$1
    local folder=$work/archives/$name sharddb=$build/x86_64-unknown-linux-musl/release/sharddb
    rm -rf "$folder"
    mkdir -p "$folder/completions"
    "$sharddb" --quiet man "$folder/man" || return
    for shell in bash elvish fish powershell zsh; do "$sharddb" completions "$shell" >"$folder/completions/sharddb.$shell" || return; done
    cp "$build/$1/release/sharddb" LICENSE-MIT LICENSE-APACHE python/LICENSE-THIRD-PARTY CHANGELOG.md cli/README.md "$folder"
    tar --create --directory "$work/archives" --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$(git log -1 --format=%ct)" "$name" | gzip --no-name -9 >"$dist/$name.tar.gz"
}

# From the folder of the archive: cli/Cargo.toml names its files.
debian() { # TARGET
    ln -sfn "$work/archives/sharddb-$version-$1" "$tree/target-archive"
    reproducibly cargo deb --quiet --no-build --no-strip --package sharddb-cli --target "$1" --output "$dist"
}

sbom() {
    cd "$tree"
    local manifest
    for manifest in cli python; do
        reproducibly cargo cyclonedx --quiet --format json --all-features --manifest-path "$manifest/Cargo.toml" \
            --override-filename "sharddb-$version-$manifest.cdx" && mv "$manifest/sharddb-$version-$manifest.cdx.json" "$dist" || return
    done
}

# ---- what was made ----

inspection() {
    cd "$dist"
    local wheel architecture
    twine check --strict ./*.whl "sharddb-$version.tar.gz" || return
    for wheel in ./*.whl; do
        check-wheel-contents "$wheel" && abi3audit --strict "$wheel" && no_larger "$wheel" 15 || return
        [ "$(unzip -l "$wheel" | grep -c licenses/LICENSE-)" = 3 ] || fail "$wheel: expected three files of licences" || return
        ! unzip -p "$wheel" sharddb/_sharddb.abi3.so | grep -qF "$root" || fail "$wheel: contains paths of this machine" || return
    done
    for wheel in ./*manylinux*.whl; do auditwheel show "$wheel" || return; done
    for architecture in x86_64 aarch64; do
        wheel=$build/$architecture-unknown-linux-musl/release/sharddb
        no_larger "$wheel" 20 || return
        file "$wheel" | grep -q 'statically linked, stripped' || fail "$wheel: neither static nor stripped" || return
        ! grep -qF "$root" "$wheel" || fail "$wheel: contains paths of this machine" || return
    done
    lintian --fail-on error,warning ./*.deb
}

no_larger() { # FILE MEGABYTES
    local size
    size=$(stat -c %s "$1")
    [ "$size" -le $(($2 * 1000000)) ] || fail "$1 has $size bytes, more than $2 MB"
}

# Into another directory, from nothing.
repetition() {
    local again=$work/again program=x86_64-unknown-linux-musl/release/sharddb differs=0 file
    rm -rf "$again"
    mkdir -p "$again/dist"
    build=$again/build CARGO_TARGET_DIR=$again/build
    wheel x86_64-unknown-linux-gnu manylinux_2_28 "$again/dist" && program x86_64-unknown-linux-musl &&
        reproducibly cargo package --quiet --locked --no-verify --workspace --exclude sharddb-examples --all-features || return
    cmp "$again/build/$program" "$work/build/$program" || differs=1
    for file in "$again"/dist/*.whl "$again"/build/package/*.crate; do cmp "$file" "$dist/${file##*/}" || differs=1; done
    [ $differs = 0 ]
}

# ---- as its first user ----

# The path of programs that do not include Rust.
without_rust() { # ENVIRONMENT COMMAND..
    local environment=$1
    shift
    (cd "$(mktemp -d "$work/empty.XXXX")" && env -i HOME="$PWD" PATH="$environment/bin:/usr/bin:/bin" "$@")
}

first_look() { # NAME PACKAGE: installs it, and runs the README and the command
    local environment=$work/$1
    rm -rf "$environment"
    "$venv/bin/python" -m venv "$environment" &&
        if [ "$1" = sdist ]; then "$environment/bin/python" -m pip install --quiet "$2"; else
            without_rust "$environment" python -m pip install --quiet "$2"
        fi && without_rust "$environment" python -m doctest "$tree/python/README.md" &&
        "$venv/bin/python" "$tree/scripts/release/smoke.py" --remote / "$environment/bin/sharddb" &&
        "$venv/bin/python" "$tree/scripts/release/smoke.py" / "$environment/bin/python" -m sharddb
}

smoke_wheel() {
    local wheel
    wheel=$(echo "$dist"/*manylinux*x86_64.whl)
    first_look wheel "$wheel" && without_rust "$venv" uvx --quiet --from "$wheel" sharddb --version &&
        without_rust "$venv" uv tool install --quiet "$wheel"
}

smoke_sdist() {
    first_look sdist "$dist/sharddb-$version.tar.gz"
}

smoke_binary() {
    local empty=$work/root-empty
    rm -rf "$empty"
    mkdir "$empty"
    tar --extract --gzip --file "$dist/sharddb-$version-x86_64-unknown-linux-musl.tar.gz" --directory "$empty" --strip-components 1 &&
        as_root "$venv/bin/python" "$tree/scripts/release/smoke.py" --remote "$empty" chroot "$empty" /sharddb
}

# The mirror that apt of this machine uses, if it is one of Debian.
debian_root() { # ROOT ARCHITECTURE [--foreign]
    local mirror
    # shellcheck disable=SC2016 # a format of apt
    mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' | awk '$2 == "bookworm" { print $1; exit }')
    rm -rf "$1"
    as_root debootstrap --variant=minbase --arch "$2" ${3+"$3"} bookworm "$1" ${mirror:+"$mirror"} >"$work/debootstrap.log" ||
        fail "$(tail -n 3 "$work/debootstrap.log")"
}

smoke_deb() {
    local debian=$work/root-debian package
    package=$(echo "$dist"/sharddb_*_amd64.deb)
    debian_root "$debian" amd64 && cp "$package" "$debian/tmp" && as_root chroot "$debian" dpkg --install "/tmp/${package##*/}" &&
        as_root "$venv/bin/python" "$tree/scripts/release/smoke.py" --remote "$debian" chroot "$debian" sharddb &&
        as_root chroot "$debian" dpkg --listfiles sharddb | grep -E 'man1/sharddb-get|completion' &&
        as_root chroot "$debian" dpkg --purge sharddb && [ -z "$(find "$debian/usr" "$debian/etc" -name '*sharddb*')" ]
}

# The quickstart and the command, from a directory source of the archives and of what they depend on.
smoke_crates() {
    local place=$work/crates
    rm -rf "$place"
    mkdir -p "$place/program/src" "$place/program/.cargo"
    cargo vendor --quiet --locked --versioned-dirs --manifest-path "$tree/Cargo.toml" "$place/vendor" >/dev/null || return
    local crate
    for crate in "$dist"/*.crate; do
        tar --extract --gzip --file "$crate" --directory "$place/vendor" &&
            printf '{"files":{},"package":"%s"}' "$(sha256sum "$crate" | cut -d ' ' -f 1)" >"$place/vendor/$(basename "$crate" .crate)/.cargo-checksum.json" || return
    done
    cp "$tree/examples/quickstart.rs" "$place/program/src/main.rs"
    printf '%s\n' '[source.crates-io]' 'replace-with = "packaged"' '[source.packaged]' "directory = '$place/vendor'" >"$place/program/.cargo/config.toml"
    printf '%s\n' '[package]' 'name = "embedder"' 'edition = "2024"' '[dependencies]' "sharddb = '=$version'" 'serde_json = { version = "1", features = ["raw_value"] }' '[workspace]' >"$place/program/Cargo.toml"
    cd "$place/program"
    export CARGO_TARGET_DIR=$place/target
    cargo run --quiet --offline --release && cargo install --quiet --offline sharddb-cli --version "$version" --root "$place/installed" &&
        "$venv/bin/python" "$tree/scripts/release/smoke.py" / "$place/installed/bin/sharddb"
}

# Python and its libraries are unpacked, not installed, since no program of the other processor can be started by another one here.
smoke_aarch64() {
    local other=$work/root-arm64 emulated=$work/arm64 package
    debian_root "$other" arm64 --foreign || return
    for package in "$other"/var/cache/apt/archives/*.deb; do as_root dpkg-deb --extract "$package" "$other" || return; done
    rm -rf "$emulated"
    python -m pip install --quiet --target "$emulated" --platform manylinux_2_28_aarch64 --python-version 3.11 --only-binary :all: \
        "$dist"/*manylinux*aarch64.whl &&
        tar --extract --gzip --file "$dist/sharddb-$version-aarch64-unknown-linux-musl.tar.gz" --directory "$work" || return
    python "$tree/scripts/release/smoke.py" / qemu-aarch64 "$work/sharddb-$version-aarch64-unknown-linux-musl/sharddb" &&
        cd "$(mktemp -d "$work/empty.XXXX")" &&
        PYTHONPATH=$emulated qemu-aarch64 -L "$other" "$other/usr/bin/python3.11" -m doctest "$tree/python/README.md" &&
        PYTHONPATH=$emulated qemu-aarch64 -L "$other" "$other/usr/bin/python3.11" -m sharddb --version
}

sums() {
    cd "$dist"
    rm -f SHA256SUMS
    sha256sum -- * >SHA256SUMS
    ls -l --block-size=1
}

# ---- in order ----

minutes=$work/minutes
[ "$from" != tree ] || : >"$minutes"
is_due=''
while IFS=: read -r name _; do
    name=${name// /}
    [ "$name" != "$from" ] || is_due=1
    [ -n "$name" ] && [ -n "$is_due" ] || continue
    begun=$SECONDS
    echo "== $name"
    if ! ("${name//-/_}"); then
        echo "release.sh: $name failed: mend it, then scripts/release.sh $version${dry:+ --dry-run} --from $name" >&2
        exit 1
    fi
    printf '%5.1f min  %s\n' "$(((SECONDS - begun) / 6))e-1" "$name" | tee -a "$minutes"
done <<<"$steps"
cat "$minutes"

#!/usr/bin/env bash
# Builds all artefacts of a release into dist/, which it empties first, and installs and runs each one where there is nothing else:
#
#   scripts/release.sh MAJOR.MINOR.PATCH [--dry-run] [--from STEP]
#
#   --dry-run    accept that Cargo.toml has no address of a repository yet, and that CHANGELOG.md has no date
#   --from STEP  continue with this step, after a failure of the environment: the results of the earlier steps are still there
#
# It works in a clone of HEAD below target/release-work, where it sets the version and commits. This checkout stays as it is, and
# nothing is uploaded: RELEASING.md says how. Needed: Linux on x86-64, Rust by rustup, Python 3.11, a C compiler, apt of Debian or
# Ubuntu, and root or sudo for chroot. No step may take more than 20 minutes.
#
# Exit: 0 if all steps passed, 1 if one failed, 2 for other arguments.
set -euo pipefail
cd "$(dirname "$0")/.."

# NAME : WHAT IT DOES
steps='
tree             : clones HEAD, sets the version, checks CHANGELOG.md and the address
tools            : installs what builds and checks
gates            : the oldest Rust compiles; the interfaces of Rust and Python changed as the version says; the workflows are sound
licences         : collects the licences of the crates that are linked
crates           : builds each crate from its archive
sdist            : packs the sources of the Python package
wheels-x86_64    : builds the wheels for glibc and musl
wheels-aarch64   : builds the wheels for glibc and musl
programs         : builds static programs, their archives and Debian packages
sbom             : lists what is linked, as CycloneDX
inspection       : checks sizes, tags, licences and paths in the artefacts
repetition       : builds a wheel, a program and the crates again, and compares the bytes
smoke-wheel      : the wheel in an environment without Rust
smoke-sdist      : the sources of the Python package
smoke-program    : the program in an empty root, with a bucket and an HTTPS server
smoke-deb        : the package on Debian
smoke-crates     : a Rust program and the command from the packaged crates, offline
smoke-aarch64    : the program and the wheel for aarch64, emulated
checksums        : SHA-256 of all artefacts
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
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ && $from =~ ^[a-z0-9_-]+$ ]] || usage
grep -q "^$from *:" <<<"$steps" || usage

root=$PWD
work=$root/target/release-work dist=$root/dist
tree=$work/tree venv=$work/venv build=$work/build
cargo=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$work" "$dist"
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$build
export PATH=$venv/bin:$work/tools/bin:$PATH:/usr/sbin:/sbin

fail() {
    echo "release.sh: $*" >&2
    return 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# ---- before anything is built ----

tree() {
    [ -z "$(git status --porcelain)" ] || fail 'the tree has changes: commit them' || return
    rm -rf "$work"/{tree,build,empty.*} "${dist:?}"/* && git clone --quiet --no-hardlinks "$root" "$tree" && cd "$tree" || return
    python3 scripts/set_release.py "$version" || return
    if [ -n "$(git status --porcelain)" ]; then
        git -c user.name=release.sh -c user.email= commit --quiet --all --message "release: set version $version" || return
    fi
    if [ -z "$dry" ]; then
        grep -q "^## \[$version\] - [0-9]\{4\}-" CHANGELOG.md || fail "CHANGELOG.md has no part '## [$version] - DATE'" || return
        ! grep -F .invalid Cargo.toml cli/Cargo.toml python/pyproject.toml CITATION.cff recipe.yaml ||
            fail 'these lines have placeholders: write the address into Cargo.toml, and run scripts/set_release.py' || return
    fi
    built_of >"$work/built-of"
}

built_of() {
    echo "$version $(git -C "$root" rev-parse HEAD)"
}

# Their own release profiles would take minutes more.
cargo_tool() { # NAME VERSION [FEATURE]
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo install --quiet --locked --root "$work/tools" --target-dir "$work/tools/target" "$1" --version "$2" ${3+--features "$3"}
}

tools() {
    local missing=() tool
    for tool in qemu-aarch64:qemu-user debootstrap lintian dpkg-shlibdeps:dpkg-dev openssl file unzip; do
        command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
    done
    if [ ${#missing[@]} -gt 0 ]; then
        as_root apt-get update -qq &&
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" debian-archive-keyring \
                >/dev/null || return
    fi
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv" || return
    python -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements-release.txt &&
        rustup target add {x86_64,aarch64}-unknown-linux-{gnu,musl} &&
        cargo_tool cargo-about 0.9.3 cli && cargo_tool cargo-auditable 0.7.7 && cargo_tool cargo-cyclonedx 0.5.9 &&
        cargo_tool cargo-deb 3.8.0 && cargo_tool cargo-semver-checks 0.51.0
}

# The interfaces against those of the tag before, and before the first tag against themselves, which shows that the checks run.
gates() {
    local oldest before crate
    oldest=$(sed -n 's/^rust-version = "\([^"]*\)".*/\1/p' Cargo.toml)
    rustup toolchain install "$oldest" --profile minimal &&
        CARGO_PROFILE_DEV_OPT_LEVEL=0 cargo "+$oldest" build --quiet --locked --workspace --exclude sharddb-examples --all-features \
            --target-dir "$work/oldest" || return
    before=$(git tag --merged HEAD --list 'v*' --sort=-version:refname | grep -vxF "v$version" | head -n 1)
    rm -rf "$work/before" && git worktree prune && git worktree add --quiet --detach "$work/before" "${before:-HEAD}" || return
    for crate in sharddb sharddb-format sharddb-container sharddb-remote sharddb-serve; do
        cargo semver-checks --package "$crate" --baseline-root "$work/before" || return
    done
    griffe check sharddb --search python --against "${before:-HEAD}" || [ "${before%.*}" != "v${version%.*}" ] ||
        fail 'the Python interface changed: that takes a minor version' || return
    zizmor --offline --quiet .github/workflows
}

# ---- artefacts ----

# The same bytes from the same commit at the same path, with the profile of all released programs.
reproducibly() {
    SOURCE_DATE_EPOCH=$(git -C "$tree" log -1 --format=%ct) \
        CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_STRIP=symbols \
        RUSTFLAGS="--remap-path-prefix=$CARGO_TARGET_DIR=/target --remap-path-prefix=$tree=/sharddb --remap-path-prefix=$cargo=/cargo" \
        CFLAGS="-ffile-prefix-map=$cargo=/cargo" "$@"
}

# Of the crates of the extension, which are also those of the command. A wheel takes each `LICENSE-*` beside its manifest.
licences() {
    cargo fetch --quiet --locked --manifest-path python/Cargo.toml &&
        cargo about generate --locked --offline --fail --config scripts/release/about.toml --manifest-path python/Cargo.toml \
            scripts/release/licences.hbs --output-file python/LICENSE-THIRD-PARTY
}

package() { # OPTION..
    reproducibly cargo package --quiet --locked --workspace --exclude sharddb-examples --all-features "$@"
}

crates() {
    package && cp "$build"/package/*-"$version".crate "$dist"
}

sdist() {
    reproducibly maturin sdist --manifest-path python/Cargo.toml --out "$dist"
}

wheel() { # TARGET COMPATIBILITY DIRECTORY
    reproducibly maturin build --quiet --release --locked --zig --target "$1" --compatibility "$2" --interpreter python3.11 \
        --manifest-path python/Cargo.toml --out "$3"
}

wheels() { # PROCESSOR
    wheel "$1-unknown-linux-gnu" manylinux_2_28 "$dist" && wheel "$1-unknown-linux-musl" musllinux_1_2 "$dist"
}

wheels_x86_64() { wheels x86_64; }

wheels_aarch64() { wheels aarch64; }

program() { # TARGET
    reproducibly cargo auditable zigbuild --quiet --release --locked --package sharddb-cli --all-features --target "$1"
}

programs() {
    local target
    for target in {x86_64,aarch64}-unknown-linux-musl; do
        program "$target" && archive "$target" && debian_package "$target" || return
    done
}

archive() { # TARGET
    local name=sharddb-$version-$1 sharddb=$build/x86_64-unknown-linux-musl/release/sharddb shell
    local folder=$work/archives/$name
    rm -rf "$folder"
    mkdir -p "$folder/completions" && "$sharddb" --quiet man "$folder/man" || return
    for shell in bash elvish fish powershell zsh; do "$sharddb" completions "$shell" >"$folder/completions/sharddb.$shell" || return; done
    mv "$folder/completions/sharddb.zsh" "$folder/completions/_sharddb" && # the name that zsh looks for
        cp "$build/$1/release/sharddb" LICENSE-MIT LICENSE-APACHE python/LICENSE-THIRD-PARTY CHANGELOG.md cli/README.md "$folder" &&
            tar --create --directory "$work/archives" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
                --mtime="@$(git log -1 --format=%ct)" "$name" | gzip --no-name -9 >"$dist/$name.tar.gz"
}

# Of the folder of the archive, which cli/Cargo.toml finds as target-archive.
debian_package() { # TARGET
    local folder=$work/archives/sharddb-$version-$1 maintainer
    maintainer=$(sed -n 's/^maintainer = "\(.*\)"/\1/p' cli/Cargo.toml)
    printf 'sharddb (%s-1) unstable; urgency=medium\n\n  * What is new is in CHANGELOG.md of the sources.\n\n -- %s  %s\n' "$version" "$maintainer" \
        "$(git log -1 --format=%cD)" >"$folder/changelog.Debian" && ln -sfn "$folder" target-archive &&
        reproducibly cargo deb --quiet --no-build --no-strip --package sharddb-cli --target "$1" --output "$dist"
}

sbom() {
    local manifest
    for manifest in cli python; do
        reproducibly cargo cyclonedx --quiet --format json --spec-version 1.5 --target all --no-build-deps --all-features \
            --manifest-path "$manifest/Cargo.toml" --override-filename "sharddb-$version-$manifest.cdx" &&
            mv "$manifest/sharddb-$version-$manifest.cdx.json" "$dist" || return
    done
    git clean --force --quiet -- '*.cdx.json'
}

# ---- what was made ----

inspection() {
    local target
    twine check --strict "$dist"/*.whl "$dist/sharddb-$version.tar.gz" || return
    for wheel in "$dist"/*.whl; do inspect_wheel "$wheel" || return; done
    for target in {x86_64,aarch64}-unknown-linux-musl; do
        inspect_program "$build/$target/release/sharddb" 20 || return
        file "$build/$target/release/sharddb" | grep 'statically linked, stripped' || fail "$target: neither static nor stripped" || return
        readelf --sections --wide "$build/$target/release/sharddb" | grep -c '\.dep-v0' || fail "$target: not auditable" || return
    done
    python scripts/release/binstall.py "$dist" && lintian --profile debian --fail-on error,warning "$dist"/*.deb
}

inspect_wheel() { # WHEEL
    check-wheel-contents "$1" && abi3audit --strict "$1" && unzip -qop "$1" sharddb/_sharddb.abi3.so >"$work/extension" &&
        inspect_program "$work/extension" 100 && inspect_program "$1" 15 || return
    [ "$(unzip -l "$1" | grep -c licenses/LICENSE-)" = 3 ] || fail "$1: expected three files of licences" || return
    case $1 in
        *manylinux*) auditwheel show "$1" | tr -s '\n ' ' ' | grep -o 'consistent with the following platform tag: "manylinux[^"]*"' ;;
        *) ! readelf --dynamic "$work/extension" | grep NEEDED | grep -v 'libc\.so' || fail "$1: needs more than the C library" ;;
    esac
}

inspect_program() { # FILE MEGABYTES
    local size
    size=$(stat -c %s "$1")
    [ "$size" -le $(($2 * 1000000)) ] || fail "$1 has $size bytes, more than $2 MB" || return
    ! grep -qF -e "$root" -e "$cargo" "$1" || fail "$1 contains paths of this machine"
}

# Into another directory, from nothing.
repetition() {
    local again=$work/again program=x86_64-unknown-linux-musl/release/sharddb differs='' file
    rm -rf "$again"
    mkdir -p "$again/dist"
    export CARGO_TARGET_DIR=$again/build
    wheel x86_64-unknown-linux-gnu manylinux_2_28 "$again/dist" && program x86_64-unknown-linux-musl && package --no-verify || return
    cmp "$again/build/$program" "$build/$program" || differs=1
    for file in "$again"/dist/*.whl "$again"/build/package/*.crate; do cmp "$file" "$dist/${file##*/}" || differs=1; done
    [ -z "$differs" ]
}

# ---- as its first user ----

smoke() { # [--remote] ROOT COMMAND..
    "$venv/bin/python" "$tree/scripts/release/smoke.py" "$@"
}

# Runs a command of an environment of Python, in an empty directory and with a path that has no Rust.
without_rust() { # ENVIRONMENT COMMAND..
    local path=$1/bin:/usr/bin:/bin
    shift
    cd "$(mktemp -d "$work/empty.XXXX")" && ! PATH=$path command -v cargo rustc && env --ignore-environment HOME="$PWD" PATH="$path" \
        ${SSL_CERT_FILE+"SSL_CERT_FILE=$SSL_CERT_FILE"} "$@"
}

try_package() { # ENVIRONMENT: the README of the package, and the command
    without_rust "$1" python -m doctest "$tree/python/README.md" && smoke --remote / "$1/bin/sharddb" && smoke / "$1/bin/python" -m sharddb
}

smoke_wheel() {
    local wheel new=$work/wheel
    wheel=$(echo "$dist"/*manylinux*x86_64.whl)
    python -m venv --clear "$new" && without_rust "$new" python -m pip install --quiet "$wheel" && try_package "$new" &&
        without_rust "$venv" uvx --quiet --from "$wheel" sharddb --version &&
        without_rust "$venv" uv tool install --quiet "$wheel" && .local/bin/sharddb --version
}

smoke_sdist() {
    local new=$work/sdist
    python -m venv --clear "$new" && "$new/bin/python" -m pip install --quiet "$dist/sharddb-$version.tar.gz" && try_package "$new"
}

smoke_program() {
    local empty=$work/root-empty
    as_root rm -rf "$empty" && mkdir "$empty" && tar --extract --gzip --file "$dist/sharddb-$version-x86_64-unknown-linux-musl.tar.gz" \
        --directory "$empty" --strip-components 1 && as_root "$venv/bin/python" scripts/release/smoke.py --remote "$empty" chroot "$empty" /sharddb
}

# The mirror is that of apt on this machine, if that is Debian.
debian_root() { # ROOT ARCHITECTURE OPTION..
    local mirror
    # shellcheck disable=SC2016 # a format of apt
    mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' | awk '$2 == "bookworm" { print $1; exit }')
    as_root rm -rf --one-file-system "$1" || return
    as_root debootstrap --variant=minbase --arch "$2" "${@:3}" bookworm "$1" ${mirror:+"$mirror"} >"$work/debootstrap.log" ||
        fail "$(tail -n 3 "$work/debootstrap.log")"
}

smoke_deb() {
    local debian=$work/root-debian package listed
    package=$(echo "$dist"/sharddb_*_amd64.deb)
    debian_root "$debian" amd64 && as_root cp "$package" "$debian/tmp" && as_root chroot "$debian" dpkg --install "/tmp/${package##*/}" &&
        as_root "$venv/bin/python" scripts/release/smoke.py --remote "$debian" chroot "$debian" sharddb || return
    listed=$(as_root chroot "$debian" dpkg --listfiles sharddb) && grep man1/sharddb-get <<<"$listed" &&
        grep bash-completion/completions/sharddb <<<"$listed" && as_root chroot "$debian" dpkg --purge sharddb || return
    [ -z "$(find "$debian/usr" "$debian/etc" -name '*sharddb*')" ] || fail 'purge left files'
}

# The sources are a directory of the archives, and of what they depend on. The program is that of the README.
smoke_crates() {
    local place=$work/crates crate sum
    rm -rf "$place"
    mkdir -p "$place/program/src" && cargo vendor --quiet --locked --versioned-dirs "$place/vendor" >/dev/null || return
    for crate in "$dist"/*.crate; do
        sum=$(sha256sum "$crate" | cut -d ' ' -f 1) && tar --extract --gzip --file "$crate" --directory "$place/vendor" &&
            printf '{"files":{},"package":"%s"}' "$sum" >"$place/vendor/$(basename "$crate" .crate)/.cargo-checksum.json" || return
    done
    sed -n '/^```rust$/,/^```$/{/^```/!p}' README.md >"$place/program/src/main.rs"
    cd "$place/program" || return
    cat >Cargo.toml <<END
[package]
name = "embedder"
edition = "2024"
[dependencies]
sharddb = "=$version"
[workspace]
END
    cat >"$place/sources.toml" <<END
[source.crates-io]
replace-with = "packaged"
[source.packaged]
directory = "$place/vendor"
END
    export CARGO_TARGET_DIR=$place/target
    cargo --config "$place/sources.toml" run --quiet --offline --release &&
        cargo --config "$place/sources.toml" install --quiet --offline sharddb-cli --version "$version" --root "$place/installed" &&
        smoke / "$place/installed/bin/sharddb"
}

# The packages of Debian are unpacked, not installed: their scripts would need an emulator that the kernel starts.
smoke_aarch64() {
    local other=$work/root-arm64 site=$work/arm64 package
    debian_root "$other" arm64 --foreign --include=python3.11 || return
    for package in "$other"/var/cache/apt/archives/*.deb; do as_root dpkg-deb --extract "$package" "$other" || return; done
    rm -rf "$site"
    python -m pip install --quiet --target "$site" --platform manylinux_2_28_aarch64 --python-version 3.11 --only-binary :all: \
        "$dist"/*manylinux*aarch64.whl &&
        smoke / qemu-aarch64 "$work/archives/sharddb-$version-aarch64-unknown-linux-musl/sharddb" &&
        cd "$(mktemp -d "$work/empty.XXXX")" || return
    export PYTHONPATH=$site
    smoke / qemu-aarch64 -L "$other" "$other/usr/bin/python3.11" -m sharddb &&
        qemu-aarch64 -L "$other" "$other/usr/bin/python3.11" -m doctest "$tree/python/README.md"
}

checksums() {
    cd "$dist" && rm -f SHA256SUMS && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" . && stat --format '%12s  %n' -- *
}

# ---- in order ----

[ "$from" = tree ] || [ "$(cat "$work/built-of" 2>/dev/null)" = "$(built_of)" ] ||
    fail 'target/release-work is of another version or commit: start without --from'
[ "$from" != tree ] || : >"$work/seconds"
is_due=''
while IFS=: read -r name _; do
    name=${name// /}
    [ "$name" != "$from" ] || is_due=1
    [ -n "$name" ] && [ -n "$is_due" ] || continue
    begun=$SECONDS
    echo "== $name"
    if ! ({ [ "$name" = tree ] || cd "$tree"; } && "${name//-/_}") </dev/null; then
        echo "release.sh: $name failed" >&2
        exit 1
    fi
    took=$((SECONDS - begun))
    printf '%5d s  %s\n' "$took" "$name" | tee -a "$work/seconds"
    [ "$took" -le 1200 ] || fail "$name took more than 20 minutes"
done <<<"$steps"
cat "$work/seconds"

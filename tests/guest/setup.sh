#!/bin/sh
# Gets what the guest tests need: QEMU, mkfs.ext4 and Debian's two kernels; and Chromium for those of the report.
#
# Installs only what is missing (through apt, which takes root), and unpacks the kernel packages into
# $HIGHORDER_CACHE (default /tmp/highorder-cache) without installing them:
#
#     CACHE/6.1/vmlinuz    CACHE/6.12/vmlinuz    CACHE/KERNEL/release    CACHE/KERNEL/modules/
#
# Where something cannot be had it says so and ends with 0: the tests then skip, naming it.
set -u

cache=${HIGHORDER_CACHE:-/tmp/highorder-cache}
updated=

missing() {
    echo "setup.sh: $1; the tests that need it will be skipped" >&2
}

apt_update_once() {
    [ -n "$updated" ] && return 0
    updated=1
    timeout 180 apt-get update -qq >/dev/null 2>&1 || missing "apt-get update failed"
}

# need COMMAND PACKAGE: installs PACKAGE unless COMMAND is there.
need() {
    # Programs of administrators may not be in everybody's PATH.
    PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1 && return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        missing "$1 is not installed (package $2), and this is not root on a system with apt"
        return 0
    fi
    apt_update_once
    DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -y -qq --no-install-recommends "$2" >/dev/null 2>&1 ||
        missing "package $2 could not be installed"
}

# kernel NAME PREFERRED PATTERN: unpacks the package PREFERRED, or else the newest one matching PATTERN.
kernel() {
    dir=$cache/$1
    [ -s "$dir/vmlinuz" ] && [ -s "$dir/release" ] && return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        missing "there is no apt-get to fetch the $1 kernel with"
        return 0
    fi
    work=$(mktemp -d) || return 0
    chmod 755 "$work"
    if ! (cd "$work" && timeout 300 apt-get download -qq "$2" >/dev/null 2>&1); then
        [ "$(id -u)" = 0 ] && apt_update_once
        package=$2
        apt-cache show "$package" >/dev/null 2>&1 ||
            package=$(apt-cache search --names-only "$3" | awk '{print $1}' | sort -V | tail -n 1)
        if [ -z "$package" ] || ! (cd "$work" && timeout 300 apt-get download -qq "$package" >/dev/null 2>&1); then
            missing "no package $2 (nor $3) for the $1 kernel"
            rm -rf "$work"
            return 0
        fi
    fi
    if dpkg-deb -x "$work"/*.deb "$work/root"; then
        release=$(basename "$work"/root/boot/vmlinuz-* | sed 's/^vmlinuz-//')
        modules=$(find "$work/root" -type d -path "*/modules/$release" | head -n 1)
        mkdir -p "$dir"
        rm -rf "$dir/modules"
        [ -n "$modules" ] && cp -r "$modules" "$dir/modules"
        cp "$work/root/boot/vmlinuz-$release" "$dir/vmlinuz.part" && mv "$dir/vmlinuz.part" "$dir/vmlinuz"
        echo "$release" >"$dir/release"
    else
        missing "the package of the $1 kernel does not unpack"
    fi
    rm -rf "$work"
}

mkdir -p "$cache" || { missing "cannot create $cache"; exit 0; }
need qemu-system-x86_64 qemu-system-x86
need mkfs.ext4 e2fsprogs
# Any browser that crates/page/tests/browser.rs looks for will do.
command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || need chromium chromium
# The releases of the recordings our tests compare with, so that both speak of the same kernels.
kernel 6.1 linux-image-6.1.0-53-cloud-amd64 '^linux-image-6\.1\.0-[0-9]+-cloud-amd64$'
kernel 6.12 'linux-image-6.12.107+deb12-cloud-amd64' '^linux-image-6\.12\.[0-9]+\+deb12-cloud-amd64$'
exit 0

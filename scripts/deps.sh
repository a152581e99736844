#!/usr/bin/env bash
# Installs missing system packages for building, testing or measuring, and says so. Knows Debian and its relatives;
# elsewhere it names the missing ones and stops.
# usage: scripts/deps.sh build|test|bench
set -euo pipefail

build="clang:clang /usr/include/libelf.h:libelf-dev
       /usr/include/zlib.h:zlib1g-dev pkg-config:pkg-config make:make cc:gcc /usr/include/asm-generic/types.h:linux-libc-dev"
test="$build python3:python3 ip:iproute2 ping:iputils-ping ethtool:ethtool iperf3:iperf3 ns:ns2 nft:nftables tshark:tshark bpftool:bpftool dnsmasq:dnsmasq-base"
bench="$test wireguard-go:wireguard-go wg:wireguard-tools sipp:sip-tester java:default-jdk-headless irtt:irtt"

case ${1:-build} in
  build) wanted=$build ;; test) wanted=$test ;; bench) wanted=$bench ;;
  *) echo "usage: scripts/deps.sh build|test|bench" >&2; exit 2 ;;
esac

PATH=$PATH:/usr/sbin:/sbin
missing=()
for entry in $wanted; do
  thing=${entry%%:*}
  case $thing in
    /*) [ -e "$thing" ] || missing+=("${entry##*:}") ;;
    *) command -v "$thing" >/dev/null || missing+=("${entry##*:}") ;;
  esac
done
command -v cargo >/dev/null || { echo "Rust is missing: install it (rust-lang.org), 1.90 or newer." >&2; exit 2; }
[ ${#missing[@]} -eq 0 ] && exit 0

echo "These system packages are needed and missing: ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "Install them with your system's package manager, then run this again." >&2
  exit 2
fi
sudo=""
[ "$(id -u)" -eq 0 ] || sudo=sudo
echo "Installing them with apt-get."
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

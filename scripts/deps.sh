#!/usr/bin/env bash
# Installs missing system packages for building, testing or measuring, and says so. Knows Debian and its relatives;
# elsewhere it names the missing ones and stops.
# "vm" also fetches a kernel for `segue lab vm`, where none is installed with its modules.
# usage: scripts/deps.sh build|test|bench|vm|deb|try-deb
set -euo pipefail

build="clang:clang /usr/include/libelf.h:libelf-dev
       /usr/include/zlib.h:zlib1g-dev pkg-config:pkg-config make:make cc:gcc /usr/include/asm-generic/types.h:linux-libc-dev"
test="$build python3:python3 ip:iproute2 ping:iputils-ping ethtool:ethtool iperf3:iperf3 ns:ns2 nft:nftables ip6tables-legacy:iptables tshark:tshark bpftool:bpftool dnsmasq:dnsmasq-base tayga:tayga freeradius:freeradius promtool:prometheus valgrind:valgrind"
bench="$test wireguard-go:wireguard-go wg:wireguard-tools sipp:sip-tester java:default-jdk-headless irtt:irtt"
vm="$build qemu-system-x86_64:qemu-system-x86 busybox:busybox-static depmod:kmod hostapd:hostapd wpa_supplicant:wpasupplicant iw:iw ip:iproute2 ping:iputils-ping"
deb="$build dpkg-shlibdeps:dpkg-dev"
try_deb="$deb ip:iproute2 dnsmasq:dnsmasq-base mmdebstrap:mmdebstrap systemd-nspawn:systemd-container"

case ${1:-build} in
  build) wanted=$build ;; test) wanted=$test ;; bench) wanted=$bench ;; vm) wanted=$vm ;; deb) wanted=$deb ;; try-deb) wanted=$try_deb ;;
  *) echo "usage: scripts/deps.sh build|test|bench|vm|deb|try-deb" >&2; exit 2 ;;
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
if [ ${#missing[@]} -gt 0 ]; then
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
  # Their packages start them; tests start their own.
  for service in freeradius prometheus; do
    case " ${missing[*]} " in
      *" $service "*) [ ! -d /run/systemd/system ] || $sudo systemctl disable --now -q $service ;;
    esac
  done
fi
[ "${1:-build}" = vm ] || exit 0

# Of Debian, unpacked and not installed: it is never to boot this machine.
readable() {
  local image
  for image in "$1"/boot/vmlinuz-*; do
    [ -r "$image" ] && [ -e "$1/lib/modules/${image##*/vmlinuz-}/modules.dep" ] && return
  done
  return 1
}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/segue/vm
if readable "$cache" || readable ""; then exit 0; fi
package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }') || true
if [ -z "$package" ]; then
  echo "No kernel to fetch is known here: install one with its modules, readable for you in /boot." >&2
  exit 2
fi
echo "Fetching $package into $cache."
fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT
(cd "$fetched" && apt-get download -qq "$package" 2>/dev/null && dpkg -x ./*.deb kernel)
for modules in "$fetched"/kernel/lib/modules/*; do
  depmod -b "$fetched/kernel" "${modules##*/}"
done
mkdir -p "$cache"
cp -r "$fetched"/kernel/boot "$fetched"/kernel/lib "$cache"

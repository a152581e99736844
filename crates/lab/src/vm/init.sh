#!/bin/busybox sh
# The first program in a virtual machine: mounts the root file system of the host machine, read-only below an overlay,
# and continues there with guest.sh.
b=/bin/busybox
$b mkdir -p /proc /sys /dev /ro /rw /new
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for module in $($b cat /modules); do
  $b insmod "/lib/$module"
done
$b mount -t tmpfs tmpfs /rw
$b mkdir /rw/upper /rw/work
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose root /ro
$b mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work overlay /new
for place in proc sys dev run; do
  $b mkdir -p /new/$place
done
$b mount -t proc proc /new/proc
$b mount -t sysfs sys /new/sys
$b mount -t devtmpfs dev /new/dev
$b mount -t tmpfs run /new/run
$b mkdir /new/run/segue-vm
$b cp $b /guest.sh /words /new/run/segue-vm
exec $b switch_root /new /run/segue-vm/busybox sh /run/segue-vm/guest.sh

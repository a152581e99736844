# Continues after init.sh: runs the script, reports its exit status, and powers the virtual machine off.
here=/run/segue-vm
b=$here/busybox
# Sets $directory, $modules, $release and PATH, and the script with its arguments as $@.
. $here/words
export PATH HOME=/root TERM=dumb
$b mkdir -p /dev/pts /dev/shm /run/netns /lib/modules
$b mount -t devpts devpts /dev/pts
$b mount -t tmpfs shm /dev/shm
$b ln -s /proc/self/fd /dev/fd
for stream in 0:stdin 1:stdout 2:stderr; do
  $b ln -s /proc/self/fd/${stream%:*} /dev/${stream#*:}
done
$b mount -t cgroup2 cgroup2 /sys/fs/cgroup
$b mount -t bpf bpf /sys/fs/bpf
$b mount -t debugfs debugfs /sys/kernel/debug
[ -e "/lib/modules/$release" ] || $b ln -sfn "$modules" "/lib/modules/$release"
$b ip link set lo up

# Prints the path of virtio port $1, which appears shortly after its driver has loaded.
port() {
  until [ -e /dev/vport*p"$1" ]; do $b usleep 10000; done
  echo /dev/vport*p"$1"
}

# A port can be opened only once, but processes of the script may reopen /dev/stderr.
$b mkfifo $here/out $here/err
$b cat $here/out >"$(port 1)" &
out=$!
$b cat $here/err >"$(port 2)" &
err=$!
(cd "$directory" && exec $b setsid "$@") </dev/null >$here/out 2>$here/err
status=$?
# Processes left by the script would keep its output open.
for process in /proc/[0-9]*; do
  case ${process#/proc/} in
    1 | $out | $err) ;;
    *) kill -KILL "${process#/proc/}" 2>/dev/null ;;
  esac
done
wait
echo $status >"$(port 3)"
$b poweroff -f

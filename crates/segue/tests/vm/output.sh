#!/bin/bash
# Says who and where it is and what it was given, on both ways out, leaves processes behind, and fails.
echo "$(id -u) $# $1 $2"
pwd
command -v segue
echo first >&2
echo second >/dev/stderr
touch /segue-vm-was-here
sleep 1000 &
setsid sleep 1000 &
exit 7

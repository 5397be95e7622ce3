#!/bin/sh
# systemd-nspawn mounts control groups (version 1) and /proc/sys read-only. A machine
# owns its own: make them writable. "bind" matters: a plain remount is refused as busy.
# One call does all groups: starting a program costs more than what it does.
mount -a -t cgroup,cgroup2 -o remount,bind,rw || echo "lab: control groups stay read-only" >&2
mount -o remount,bind,rw /proc/sys || echo "lab: /proc/sys stays read-only" >&2
# Kubelet and CSI expect mounts to propagate, as on a real machine.
mount --make-rshared /

#!/bin/sh
# systemd-nspawn mounts control groups (version 1) and /proc/sys read-only. A machine
# owns its own: make them writable. "bind" matters: a plain remount is refused as busy.
set -u
while read -r _ where type options _; do
	case "$type:$where" in
	cgroup:* | cgroup2:* | *:/proc/sys | *:/proc/sys/*) ;;
	*) continue ;;
	esac
	case ",$options," in
	*,ro,*) mount -o remount,bind,rw "$where" || echo "lab: $where stays read-only" >&2 ;;
	esac
done </proc/self/mounts
# Kubelet and CSI expect mounts to propagate, as on a real machine.
mount --make-rshared /

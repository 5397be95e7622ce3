# The parent of one machine: $1 its directory, $2 its control groups (one a line),
# the rest is the command. Its only work is what must happen when nobody else is
# there: note when the machine is off, and whether it wants to be started again.
dir=$1 groups=$2
shift 2
rm -f "$dir/exit"
for g in $groups; do echo $$ >"$g/cgroup.procs" || exit 1; done
echo $$ >"$dir/pid"
"$@"
rc=$? # 133: systemd-nspawn --keep-unit says so when the machine asked for a reboot
# A systemd-nspawn that was killed leaves the machine running without it: a machine
# whose launcher crashed has crashed. The first group holds all of its processes.
for g in $groups; do break; done
for p in $(find "$g" -name cgroup.procs -exec cat {} + 2>/dev/null); do
	[ "$p" = $$ ] || kill -9 "$p" 2>/dev/null
done
echo $rc >"$dir/exit"

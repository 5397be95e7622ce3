// Package etcd is the phase etcd-setup: an etcd of hk's own on the masters or on
// its own pool, TLS both ways, managed by systemd.
//
// Its rules: a new cluster is made only where no member answers, no host holds
// data and no born mark exists; once born, a member is touched only while the
// others are proven to be a quorum, and the next one only after this one is
// proven healthy; certificates, programs and the unit are renewed without
// touching the data.
//
// What it asks of a host, besides files and units: `systemd-sysusers --inline`
// for the user etcd, `systemctl restart etcd.service`. Everything else goes
// through etcd's own API.
//
// Start reading at decide.go, then data.go and service.go.
package etcd

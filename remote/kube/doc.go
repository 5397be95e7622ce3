// Package kube implements remote.Kube with client-go's rest and dynamic
// clients. The typed clientset is kept out: linking it costs every start of hk
// several milliseconds.
package kube

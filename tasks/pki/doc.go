// Package pki makes hk's certificates with Go's crypto: authorities that live
// in the credential unit, leaf certificates and kubeconfigs that live on hosts,
// and the service-account key pair, all in the forms kubeadm expects to find.
//
// Its rules: keys are ECDSA P-256; a certificate begins an hour before it was
// made and never outlives its authority; nothing here reads a clock, a file or
// the network. It never decides whether a new key may be made: that is the
// vault's business.
package pki

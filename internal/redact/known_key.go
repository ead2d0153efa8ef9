package redact

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/binary"
	"math/big"
	"strings"
)

// privateNumbers returns two parts of each number that a private key keeps secret, and
// nothing for what is no key: DER of PKCS#8, PKCS#1 or SEC 1, or OpenSSH's form. The
// parts are neighbours, so that an end of a line within one leaves the other whole,
// whatever a log, a diff or a trace writes between the lines.
func privateNumbers(key []byte) [][]byte {
	var numbers [][]byte
	if rest, ok := bytes.CutPrefix(key, []byte("openssh-key-v1\x00")); ok {
		numbers = opensshNumbers(rest)
	} else {
		numbers = derNumbers(key)
	}
	// The middle of a number is the same however long a form writes it.
	var parts [][]byte
	for _, n := range numbers {
		n = bytes.TrimLeft(n, "\x00")
		if len(n) < maxWindow {
			continue
		}
		middle := len(n) / 2
		from, to := max(0, middle-maxWindow), min(len(n), middle+maxWindow)
		parts = append(parts, n[from:from+maxWindow], n[to-maxWindow:to])
	}
	return parts
}

func derNumbers(der []byte) [][]byte {
	if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		switch key := key.(type) {
		case *rsa.PrivateKey:
			return rsaNumbers(key)
		case *ecdsa.PrivateKey:
			return scalar(key.Bytes())
		case ed25519.PrivateKey:
			return [][]byte{key.Seed()}
		case *ecdh.PrivateKey:
			return [][]byte{key.Bytes()}
		}
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return rsaNumbers(key)
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return scalar(key.Bytes())
	}
	return nil
}

func scalar(d []byte, err error) [][]byte {
	if err != nil {
		return nil
	}
	return [][]byte{d}
}

func rsaNumbers(key *rsa.PrivateKey) [][]byte {
	p := key.Precomputed
	var all [][]byte
	for _, n := range append([]*big.Int{p.Dp, p.Dq, p.Qinv}, key.Primes...) {
		if n != nil {
			all = append(all, n.Bytes())
		}
	}
	return append(all, lowerHalf(key.D.Bytes()))
}

// lowerHalf is the part of RSA's exponent that does not follow from the public key.
func lowerHalf(d []byte) []byte { return d[len(d)/2:] }

// opensshNumbers reads the private numbers of the one key in OpenSSH's form, after its
// magic, where no passphrase protects it (PROTOCOL.key of OpenSSH).
func opensshNumbers(b []byte) [][]byte {
	cipher, b := sshString(b)
	_, b = sshString(b) // the function that makes a key of a passphrase
	_, b = sshString(b) // its options
	if string(cipher) != "none" || len(b) < 4 {
		return nil
	}
	_, b = sshString(b[4:]) // after the number of keys: the public key
	b, _ = sshString(b)
	if len(b) < 8 {
		return nil
	}
	name, b := sshString(b[8:]) // after two check values
	var fields [6][]byte
	for i := range fields {
		fields[i], b = sshString(b)
	}
	switch kind := string(name); {
	case kind == "ssh-ed25519" && len(fields[1]) == ed25519.PrivateKeySize:
		return [][]byte{fields[1][:ed25519.SeedSize]}
	case kind == "ssh-rsa":
		d, p, q := new(big.Int).SetBytes(fields[2]), new(big.Int).SetBytes(fields[4]), new(big.Int).SetBytes(fields[5])
		numbers := append([][]byte{lowerHalf(fields[2])}, fields[3:6]...) // d, the inverse of q, p, q
		for _, prime := range []*big.Int{p, q} {
			if less := prime.Sub(prime, big.NewInt(1)); less.Sign() > 0 {
				numbers = append(numbers, less.Mod(d, less).Bytes())
			}
		}
		return numbers
	case strings.HasPrefix(kind, "ecdsa-sha2-"):
		return fields[2:3]
	}
	return nil
}

// sshString cuts a string with its length before it off b; nothing if it is not whole.
func sshString(b []byte) (s, rest []byte) {
	if len(b) < 4 {
		return nil, nil
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if b = b[4:]; uint64(len(b)) < n {
		return nil, nil
	}
	return b[:n], b[n:]
}

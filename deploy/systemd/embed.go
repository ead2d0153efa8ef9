// Package systemd holds the units, their drop-ins and the metadata guard's rules, so
// that machines which are made from code get the files that operators are shown.
package systemd

import "embed"

// Files are the files of this directory, by their path in it.
//
//go:embed *.service *.path *.timer *.nft *.service.d/*.conf
var Files embed.FS

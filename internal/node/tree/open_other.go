//go:build !unix

package tree

const openFlags = 0

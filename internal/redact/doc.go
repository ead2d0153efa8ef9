// Package redact finds secrets in bytes. Two rooms stand on it: the scan of a disk that
// becomes an image (internal/node/generalize), and what is published of a node
// (internal/boots/verdict). It finds them in two ways:
//
//   - By value: Known has secrets of one node, such as its kubelet's key, and finds
//     each wherever a part of it lies that only who has the secret can know: in any
//     alignment, indentation, line length and nesting of the wrappings that Known lists.
//     No parser has to understand the file.
//   - By form: Find knows the kinds of secrets that people have on nodes, by Rules.
//
// It says where a secret lies, and never keeps its value. It reads no files, has no
// state between calls, and takes time in proportion to what it is given: a disk has
// 20 GB, and a scan of it three minutes on two cores.
package redact

// Package files changes a set of files so that a power cut at any moment leaves, once
// Discard has run, the old set or the new one and never a mix.
//
// Everything new is written and synced beside its target first; then a journal that names
// the old and the new set is synced; then names change. The journal goes when the caller
// says that the new set is good (Keep). A journal that is found at a start means: back to
// the old set (Restore, and Discard to end it).
//
// For each path of the current set it keeps the baseline: what lay there before a set had
// it, or that nothing did. A path that a later set omits goes back to that. Folders that
// were made for files stay. Extended attributes and times are not kept.
//
// On a machine, no path that a user who is not root can lead elsewhere is read or written:
// ErrUnsafe.
package files

import "io/fs"

// An Entry is what lies at one path: a regular file, or a symbolic link.
type Entry struct {
	Path    string      `json:"path"`              // absolute and clean
	Link    string      `json:"link,omitempty"`    // a symbolic link's target; the rest is of a file
	Absent  bool        `json:"absent,omitempty"`  // nothing lies there
	Content []byte      `json:"content,omitempty"` //
	Mode    fs.FileMode `json:"mode,omitempty"`    // permission bits
	UID     int         `json:"uid,omitempty"`
	GID     int         `json:"gid,omitempty"`
}

// A Set is one Entry for each path, sorted by path.
type Set []Entry

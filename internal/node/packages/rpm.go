package packages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// Tags and types of an RPM header. Source: rpm's rpmtag.h and its manual's page on the header format.
const (
	tagName      = 1000
	tagVersion   = 1001
	tagRelease   = 1002
	tagEpoch     = 1003
	tagArch      = 1022
	tagSourceRPM = 1044

	typeInt32  = 4
	typeString = 6

	entryBytes = 16
)

// A rpmReader gives each the header of each package. What is read before an error counts.
type rpmReader func(r io.ReaderAt, size int64, each func(header []byte)) error

func (l *list) headers(read rpmReader, r io.ReaderAt, size int64) error {
	broken := 0
	err := read(r, size, func(header []byte) {
		p, err := rpmOf(header)
		if err != nil {
			broken++
		} else if p.Name != "gpg-pubkey" { // a key that RPM trusts
			l.add(p)
		}
	})
	if err == nil && broken > 0 {
		err = fmt.Errorf("%d headers cannot be read", broken)
	}
	return err
}

// rpmOf reads a header: the number of entries, the length of the data, entries (tag, type, offset,
// count), data; numbers are big-endian.
func rpmOf(header []byte) (p wire.Package, err error) {
	if len(header) < 8 {
		return p, errors.New("a header of less than 8 bytes")
	}
	entries, length := binary.BigEndian.Uint32(header), binary.BigEndian.Uint32(header[4:])
	if int64(entries)*entryBytes+int64(length) > int64(len(header)-8) {
		return p, errors.New("a header that is cut")
	}
	index := header[8 : 8+entries*entryBytes]
	data := header[8+entries*entryBytes:][:length]
	words := map[uint32]string{}
	for ; len(index) > 0; index = index[entryBytes:] {
		tag, kind, at := binary.BigEndian.Uint32(index), binary.BigEndian.Uint32(index[4:]), binary.BigEndian.Uint32(index[8:])
		if _, seen := words[tag]; seen || at > length { // RPM has each tag once
			continue
		}
		switch value := data[at:]; tag {
		case tagName, tagVersion, tagRelease, tagArch, tagSourceRPM:
			if kind == typeString {
				words[tag] = string(value[:max(0, bytes.IndexByte(value[:min(len(value), maxField)], 0))])
			}
		case tagEpoch:
			if kind == typeInt32 && len(value) >= 4 {
				words[tag] = fmt.Sprintf("%d:", binary.BigEndian.Uint32(value))
			}
		}
	}
	p = wire.Package{Type: wire.RPM, Name: words[tagName], Arch: words[tagArch], Source: words[tagSourceRPM],
		Version: strings.TrimSuffix(words[tagEpoch]+words[tagVersion]+"-"+words[tagRelease], "-")}
	if p.Name == "" || words[tagVersion] == "" {
		return p, errors.New("a header without a name or a version")
	}
	return p, nil
}

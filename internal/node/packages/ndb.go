package packages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The format is that of RPM's lib/backend/ndb/rpmpkg.c.
const (
	ndbMagic    = "RpmP"
	ndbSlot     = "Slot"
	ndbBlob     = "BlbS"
	ndbHeader   = 32
	ndbPage     = 4096
	ndbBlock    = 16 // bytes; also of a slot, and of what is before a blob
	ndbOverhead = 28 // bytes of a blob's blocks, before and after it
)

// ndbHeaders reads RPM's database as ndb: pages of slots, each with the place of a package's header. Blobs that
// overlap end it, so that no more is read than the file has.
func ndbHeaders(r io.ReaderAt, size int64, each func(header []byte)) error {
	var h [ndbHeader]byte
	if _, err := r.ReadAt(h[:], 0); err != nil || string(h[:4]) != ndbMagic || binary.LittleEndian.Uint32(h[4:]) != 0 {
		return errors.New("it is no database of kind ndb, version 0")
	}
	var d reading
	page, at, left := make([]byte, ndbPage), ndbHeader, size
	for n := range int64(binary.LittleEndian.Uint32(h[12:])) {
		if _, err := r.ReadAt(page, n*ndbPage); err != nil {
			d.fail(fmt.Errorf("it is cut: read page %d of slots: %w", n, err))
			break
		}
		for ; at < ndbPage; at += ndbBlock {
			slot := page[at:]
			if string(slot[:4]) != ndbSlot {
				d.fail(fmt.Errorf("page %d is none of slots", n))
				return d.err
			}
			id := binary.LittleEndian.Uint32(slot[4:])
			offset, length := int64(binary.LittleEndian.Uint32(slot[8:]))*ndbBlock, int64(binary.LittleEndian.Uint32(slot[12:]))*ndbBlock
			switch {
			case offset == 0: // free
				continue
			case !d.more():
				return d.err
			case offset+length > size:
				d.fail(fmt.Errorf("it is cut: package %d is not there", id))
				continue
			}
			if left -= length; left < 0 {
				d.fail(errors.New("its packages overlap"))
				return d.err
			}
			if header, err := readBlob(io.NewSectionReader(r, offset, length), id); err != nil {
				d.fail(fmt.Errorf("package %d: %w", id, err))
			} else {
				each(header)
			}
		}
		at = 0
	}
	return d.err
}

func readBlob(r *io.SectionReader, id uint32) ([]byte, error) {
	var h [ndbBlock]byte
	if _, err := io.ReadFull(r, h[:]); err != nil || string(h[:4]) != ndbBlob || binary.LittleEndian.Uint32(h[4:]) != id {
		return nil, errors.New("its slot leads to no blob of it")
	}
	length := int64(binary.LittleEndian.Uint32(h[12:]))
	if length > r.Size()-ndbOverhead || length > maxRow {
		return nil, fmt.Errorf("a blob of %d bytes in %d", length, r.Size())
	}
	data := make([]byte, length)
	_, err := io.ReadFull(r, data)
	return data, err
}
